// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
)

// untilDecided is what the annotation says where nobody may start the workload
// before somebody decided: a time, for those who read times.
const untilDecided = "9999-12-31T23:59:59Z"

// FormatUntil is the value of the annotation sluice.dev/stopped-until for a time
// in policy time; the zero time means until somebody decides.
func FormatUntil(until time.Time) string {
	if until.IsZero() {
		return untilDecided
	}
	return until.UTC().Format(time.RFC3339)
}

// StoppedUntil reads the annotation: whether Sluice stopped the object, and until
// when (policy time, to the second). The zero time means until somebody decides;
// so does a value that cannot be read, since a door that opens by itself is none.
func StoppedUntil(object *unstructured.Unstructured) (until time.Time, stopped bool) {
	value, stopped := object.GetAnnotations()[v1alpha1.AnnotationStoppedUntil]
	if !stopped || value == untilDecided {
		return time.Time{}, stopped
	}
	until, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, true
	}
	return until, true
}
