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

// InvalidRequest is all that is wrong with what a pod asks for. Each entry has the
// field as the author wrote it, below the pod or the template itself
// (metadata.annotations[gpu-fraction]), the value, and what is allowed.
type InvalidRequest field.ErrorList

// maxListedErrors is how many entries the text of a Malformed has before it counts.
const maxListedErrors = 10

// Error is one line; a pod with very many faults is told the first of them.
func (m InvalidRequest) Error() string {
	var text strings.Builder
	for i, problem := range m {
		if i == maxListedErrors {
			fmt.Fprintf(&text, "; and %d more", len(m)-maxListedErrors)
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
func (m InvalidRequest) Unwrap() []error {
	list := make([]error, len(m))
	for i := range m {
		list[i] = m[i]
	}
	return list
}

// WithPrefix is the same of a template that lies deeper in its object: with
// "spec.template" the fields are those of a Job or a Deployment.
func (m InvalidRequest) WithPrefix(path string) InvalidRequest {
	moved := make(InvalidRequest, len(m))
	for i, problem := range m {
		below := *problem
		below.Field = path + "." + problem.Field
		moved[i] = &below
	}
	return moved
}

// errorCollector gathers what is wrong while a pod is read.
type errorCollector struct{ errs InvalidRequest }

// addInvalid is a value that is not allowed, and what is.
func (p *errorCollector) addInvalid(path, value, allowed string) {
	p.errs = append(p.errs, &field.Error{Type: field.ErrorTypeInvalid, Field: path, BadValue: truncateValue(value), Detail: allowed})
}

// newRequiredError is the fault of a nil pod.
func newRequiredError(what string) InvalidRequest {
	return InvalidRequest{{Type: field.ErrorTypeRequired, Field: what, Detail: "there is none to read"}}
}

// sortErrorsFrom orders what was found since there were n entries, where it was found
// in the random order of a map.
func (p *errorCollector) sortErrorsFrom(n int) {
	slices.SortFunc(p.errs[n:], func(a, b *field.Error) int {
		if order := strings.Compare(a.Field, b.Field); order != 0 {
			return order
		}
		return strings.Compare(a.Detail, b.Detail)
	})
}

// maxValueBytes is how many bytes of a value an error repeats: messages go to logs
// and to the API server, and a value can be as large as an object.
const maxValueBytes = 64

func truncateValue(value string) string {
	if len(value) <= maxValueBytes {
		return value
	}
	cut := maxValueBytes
	for cut > 0 && !utf8.RuneStart(value[cut]) {
		cut--
	}
	return value[:cut] + "..."
}
