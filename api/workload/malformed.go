// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Malformed is all that is wrong with what a pod asks for. Each entry has the
// field as the author wrote it, below the pod or the template itself
// (metadata.annotations[gpu-fraction]), the value, and what is allowed.
type Malformed field.ErrorList

// mostNamed is how many entries the text of a Malformed has before it counts.
const mostNamed = 10

// Error is one line; a pod with very many faults is told the first of them.
func (m Malformed) Error() string {
	var text strings.Builder
	for i, problem := range m {
		if i == mostNamed {
			fmt.Fprintf(&text, "; and %d more", len(m)-mostNamed)
			break
		}
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(problem.Error())
	}
	return text.String()
}

// Unwrap gives the entries to errors.As.
func (m Malformed) Unwrap() []error {
	list := make([]error, len(m))
	for i := range m {
		list[i] = m[i]
	}
	return list
}

// Under is the same of a template that lies deeper in its object: with
// "spec.template" the fields are those of a Job or a Deployment.
func (m Malformed) Under(path string) Malformed {
	moved := make(Malformed, len(m))
	for i, problem := range m {
		below := *problem
		below.Field = path + "." + problem.Field
		moved[i] = &below
	}
	return moved
}

// problems gathers what is wrong while a pod is read.
type problems struct{ found Malformed }

// invalid is a value that is not allowed, and what is.
func (p *problems) invalid(path, value, allowed string) {
	p.found = append(p.found, &field.Error{Type: field.ErrorTypeInvalid, Field: path, BadValue: shown(value), Detail: allowed})
}

// nothing is the fault of a nil pod.
func nothing(what string) Malformed {
	return Malformed{{Type: field.ErrorTypeRequired, Field: what, Detail: "there is none to read"}}
}

// sortFrom orders what was found since there were n entries, where it was found
// in the random order of a map.
func (p *problems) sortFrom(n int) {
	slices.SortFunc(p.found[n:], func(a, b *field.Error) int {
		if order := strings.Compare(a.Field, b.Field); order != 0 {
			return order
		}
		return strings.Compare(a.Detail, b.Detail)
	})
}

// mostShown is how many bytes of a value an error repeats: messages go to logs
// and to the API server, and a value can be as large as an object.
const mostShown = 64

func shown(value string) string {
	if len(value) <= mostShown {
		return value
	}
	cut := mostShown
	for cut > 0 && !utf8.RuneStart(value[cut]) {
		cut--
	}
	return value[:cut] + "..."
}
