// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filled

import (
	"math"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"sluice.dev/policies/merge/value"
)

// jobs are what the API server fills in on a Job, around its template.
var jobs = map[string]rule{
	"JobSpec.backoffLimit":         backoffLimit,
	"JobSpec.completionMode":       is(string(batchv1.NonIndexedCompletion)),
	"JobSpec.completions":          completions,
	"JobSpec.manualSelector":       is(false),
	"JobSpec.parallelism":          is(1),
	"JobSpec.podReplacementPolicy": podReplacementPolicy,
	"JobSpec.suspend":              is(false),
	"ObjectMeta.labels":            templateLabel,

	"PodFailurePolicyOnPodConditionsPattern.status": is(string(corev1.ConditionTrue)),
}

// Where each index has a limit of its own there is none for all together.
func backoffLimit(_ Cluster, at Place, v any) bool {
	if at.Parent["backoffLimitPerIndex"] != nil {
		return value.Equal(v, math.MaxInt32)
	}
	return value.Equal(v, 6)
}

// Completions are filled in together with the parallelism only.
func completions(_ Cluster, at Place, v any) bool {
	return value.Equal(v, 1) && value.Equal(at.Parent["parallelism"], 1)
}

// A pod failure policy is about pods that have failed, so with one only these are
// replaced.
func podReplacementPolicy(_ Cluster, at Place, v any) bool {
	if at.Parent["podFailurePolicy"] != nil {
		return value.Equal(v, string(batchv1.Failed))
	}
	return value.Equal(v, string(batchv1.TerminatingOrFailed))
}

// A Job without labels has those of its template, all of them.
func templateLabel(_ Cluster, at Place, _ any) bool {
	template := value.Map(value.Map(at.Object["spec"])["template"])
	return template != nil && value.Same(at.Parent, at.Object["metadata"]) &&
		value.Equal(at.Parent["labels"], value.Map(template["metadata"])["labels"])
}
