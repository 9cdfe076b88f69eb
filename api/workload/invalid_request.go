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

// InvalidRequest lists all problems of a pod's request. Each entry has the field relative to the
// pod or template, such as metadata.annotations[gpu-fraction], the value, and what is allowed.
type InvalidRequest field.ErrorList

// maxListedErrors is the number of entries in the text of an InvalidRequest. It only counts the
// others.
const maxListedErrors = 10

// Error returns one line with the first problems.
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

// Unwrap returns the entries for errors.As.
func (m InvalidRequest) Unwrap() []error {
	list := make([]error, len(m))
	for i := range m {
		list[i] = m[i]
	}
	return list
}

// WithPrefix returns the same problems for a template within an object. With "spec.template" the
// fields are those of a Job or Deployment.
func (m InvalidRequest) WithPrefix(path string) InvalidRequest {
	moved := make(InvalidRequest, len(m))
	for i, problem := range m {
		below := *problem
		below.Field = path + "." + problem.Field
		moved[i] = &below
	}
	return moved
}

// errorCollector collects problems while a pod is parsed.
type errorCollector struct{ errs InvalidRequest }

// addInvalid adds an invalid value and what is allowed.
func (p *errorCollector) addInvalid(path, value, allowed string) {
	p.errs = append(p.errs, &field.Error{Type: field.ErrorTypeInvalid, Field: path, BadValue: truncateValue(value), Detail: allowed})
}

// newRequiredError returns the error for a nil pod.
func newRequiredError(what string) InvalidRequest {
	return InvalidRequest{{Type: field.ErrorTypeRequired, Field: what, Detail: "must not be nil"}}
}

// sortErrorsFrom sorts the problems since the first n, which were found in the random order of a
// map.
func (p *errorCollector) sortErrorsFrom(n int) {
	slices.SortFunc(p.errs[n:], func(a, b *field.Error) int {
		if order := strings.Compare(a.Field, b.Field); order != 0 {
			return order
		}
		return strings.Compare(a.Detail, b.Detail)
	})
}

// maxValueBytes is the number of bytes of a value in an error. Errors are written to logs and to
// the API server, and a value can be as large as an object.
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
