// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// longestMessage is what the API server takes for a condition's, in bytes.
const longestMessage = 32768

// shown puts the faults among the conditions, and tells whether that changed any.
func shown(conditions *[]metav1.Condition, faults []string, generation int64, now metav1.Time) bool {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionMembersBound, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplied, Message: "the members have the rights of their roles",
		ObservedGeneration: generation, LastTransitionTime: now,
	}
	if len(faults) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonBindingRefused
		condition.Message = strings.Join(faults, "; ")
		if len(condition.Message) > longestMessage {
			condition.Message = strings.ToValidUTF8(condition.Message[:longestMessage-3], "") + "..."
		}
	} else if meta.FindStatusCondition(*conditions, v1alpha1.ConditionMembersBound) == nil {
		return false
	}
	return meta.SetStatusCondition(conditions, condition)
}
