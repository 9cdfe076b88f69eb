// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/render"
)

// required says what the pool's engine lacks, then what is not known of its GPUs,
// then which policies did not say what they need.
func required(pool *v1alpha1.NodePool, seen Observation, service Service) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionRequirementsMet, Status: metav1.ConditionFalse}
	missing := service.Findings.Sentences()
	failed := make([]string, 0, len(service.Failures))
	for _, failure := range service.Failures {
		failed = append(failed, fmt.Sprintf("policy %s could not be asked what it requires: %v", failure.Policy, failure.Err))
	}
	switch {
	case len(missing) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonRequirementsMissing, strings.Join(missing, "; ")
	case len(failed) > 0 && wasMissing(pool):
		// What was missing is not known to be there.
		return *meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionRequirementsMet)
	case len(seen.Unusable) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonGPUsUnknown, list(seen.Unusable)
	case len(failed) > 0:
		condition.Status = metav1.ConditionUnknown
		condition.Reason, condition.Message = ReasonPolicyFailed, list(failed)
	default:
		condition.Status = metav1.ConditionTrue
		condition.Reason, condition.Message = ReasonGPUsKnown, "the GPUs of every node are known"
		if service.Required > 0 {
			condition.Message += fmt.Sprintf(", and %s has what is required of it", pool.Spec.Scheduler)
		}
	}
	condition.Message = render.Clip(condition.Message)
	return condition
}

func wasMissing(pool *v1alpha1.NodePool) bool {
	before := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionRequirementsMet)
	return before != nil && before.Status == metav1.ConditionFalse && before.Reason == v1alpha1.ReasonRequirementsMissing
}

// mostSettings is how many the schema allows.
const mostSettings = 32

// settings are what was found in the engine's configuration; of policies that could
// not be asked, what was there before.
func settings(pool *v1alpha1.NodePool, service Service) map[string]string {
	found := service.Findings.Settings
	if len(service.Failures) == 0 || len(pool.Status.Settings) == 0 {
		return found
	}
	all := make(map[string]string, mostSettings)
	maps.Copy(all, found)
	for _, name := range slices.Sorted(maps.Keys(pool.Status.Settings)) {
		if _, known := all[name]; !known && len(all) < mostSettings {
			all[name] = pool.Status.Settings[name]
		}
	}
	return all
}
