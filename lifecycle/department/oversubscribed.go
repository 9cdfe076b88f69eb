// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package department

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/promises"
	"sluice.dev/api/v1alpha1"
)

// Oversubscribed tells whether the department's projects, which are among projects,
// were promised more than it has, and of what. Admission refuses that where it sees
// it coming; of two projects that are made at the same instant it does not.
func Oversubscribed(department *v1alpha1.Department, projects []v1alpha1.Project, now metav1.Time) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionOversubscribed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWithinQuota,
		Message:            "what its projects were promised is there",
		ObservedGeneration: department.Generation, LastTransitionTime: now,
	}
	excess := promises.Excess(promises.Of(department, projects, ""))
	switch {
	case excess == "":
	case department.Spec.Oversubscription == v1alpha1.OversubscriptionAllow:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonAllowed
		condition.Message = "as spec.oversubscription allows, not all of its projects can have what they were promised at once: " + excess
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonPromisedTooMuch
		condition.Message = excess + "; lower what its projects were promised, or set spec.oversubscription to Allow"
	}
	return condition
}
