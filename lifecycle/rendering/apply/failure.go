// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// ReasonObjectsRefused means that an object that a policy renders could not be applied.
// The message names the object, the reason and what to do.
const ReasonObjectsRefused = "ObjectsRefused"

// Failure is an object that could not be applied, or a policy that could not be evaluated.
type Failure struct {
	// Policy is the policy's name; empty if the policy is not the cause.
	Policy string
	// AffectsQuota reports that a quota may be missing, and AffectsQueue that a queue may
	// be missing.
	AffectsQuota, AffectsQueue bool
	// Transient reports that the failure may resolve itself within seconds.
	Transient bool
	// Err describes the problem and what to do.
	Err error
}

// String returns the failure with the name of its policy.
func (f Failure) String() string {
	if f.Policy == "" {
		return f.Err.Error()
	}
	return "policy " + f.Policy + ": " + f.Err.Error()
}

// JoinFailures returns the failures that match in one line.
func JoinFailures(failures []Failure, match func(Failure) bool) string {
	var texts []string
	for _, failure := range failures {
		if match(failure) {
			texts = append(texts, failure.String())
		}
	}
	return strings.Join(texts, "; ")
}

// QueueAppliedCondition returns the condition QueueApplied for the queues that were
// applied and the failures. The caller sets its generation and time.
func QueueAppliedCondition(queues []string, failures []Failure) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionQueueApplied, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplied}
	if text := JoinFailures(failures, func(f Failure) bool { return f.AffectsQueue }); text != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonObjectsRefused, TruncateMessage(text)
		return c
	}
	c.Message = "no queue is needed"
	if len(queues) > 0 {
		c.Message = TruncateMessage("applied: " + strings.Join(queues, ", "))
	}
	return c
}

// TruncateMessage returns a message that is short enough for a condition.
func TruncateMessage(message string) string {
	const most = 4096
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most-len(" ...")], "") + " ..."
}
