// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// ReasonObjectsRefused: something that a policy renders cannot be had; the message
// says what, and whose it is to change that.
const ReasonObjectsRefused = "ObjectsRefused"

// Fault is something that a policy wants and that is not there.
type Fault struct {
	// Policy is the policy's name; empty where it is not the policy's fault.
	Policy string
	// Quota tells that a quota may be missing because of it, Queue that a queue may.
	Quota, Queue bool
	// Passing tells that it may pass by itself within moments.
	Passing bool
	// Err is what is wrong, and what to do.
	Err error
}

// String is the fault for people.
func (f Fault) String() string {
	if f.Policy == "" {
		return f.Err.Error()
	}
	return "policy " + f.Policy + ": " + f.Err.Error()
}

// Texts are the faults for people in one line, of those that which picks.
func Texts(faults []Fault, which func(Fault) bool) string {
	var texts []string
	for _, fault := range faults {
		if which(fault) {
			texts = append(texts, fault.String())
		}
	}
	return strings.Join(texts, "; ")
}

// QueueApplied is the condition that says whether a subject's queues are there:
// these, and what became of the others. Its generation and time are the caller's.
func QueueApplied(queues []string, faults []Fault) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionQueueApplied, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplied}
	if said := Texts(faults, func(f Fault) bool { return f.Queue }); said != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonObjectsRefused, Clip(said)
		return c
	}
	c.Message = "no queue is needed"
	if len(queues) > 0 {
		c.Message = Clip("applied: " + strings.Join(queues, ", "))
	}
	return c
}

// Clip is a message short enough for a condition, cut between characters.
func Clip(message string) string {
	const most = 4096
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most-len(" ...")], "") + " ..."
}
