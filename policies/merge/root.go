// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	batchv1 "k8s.io/api/batch/v1"

	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// rootOf is what an object consists of: a Job is one, all else is a pod, since a
// template may not say what it is.
func rootOf(object map[string]any) *podschema.Type {
	if value.Text(object["apiVersion"]) == batchv1.SchemeGroupVersion.String() && value.Text(object["kind"]) == "Job" {
		return podschema.Job()
	}
	return podschema.Pod()
}

// podIn leads from the root to the pod in it.
func podIn(root *podschema.Type) []string {
	if root == podschema.Job() {
		return []string{"spec", "template"}
	}
	return nil
}

// called names the root in a sentence.
func called(root *podschema.Type) string { return "a " + namesOf[root] }

var namesOf = map[*podschema.Type]string{podschema.Pod(): "pod", podschema.Job(): "Job"}
