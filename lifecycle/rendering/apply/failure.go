// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// ReasonObjectsRefused: something that a policy renders cannot be had; the message
// says what, and whose it is to change that.
const ReasonObjectsRefused = "ObjectsRefused"

// Failure is something that a policy wants and that is not there.
type Failure struct {
	// Policy is the policy's name; empty where it is not the policy's fault.
	Policy string
	// AffectsQuota tells that a quota may be missing because of it, Queue that a queue may.
	AffectsQuota, AffectsQueue bool
	// Transient tells that it may pass by itself within moments.
	Transient bool
	// Err is what is wrong, and what to do.
	Err error
}

// String is the fault for people.
func (f Failure) String() string {
	if f.Policy == "" {
		return f.Err.Error()
	}
	return "policy " + f.Policy + ": " + f.Err.Error()
}

// JoinFailures are the faults for people in one line, of those that which picks.
func JoinFailures(faults []Failure, which func(Failure) bool) string {
	var texts []string
	for _, fault := range faults {
		if which(fault) {
			texts = append(texts, fault.String())
		}
	}
	return strings.Join(texts, "; ")
}

// QueueAppliedCondition is the condition that says whether a subject's queues are there:
// these, and what became of the others. Its generation and time are the caller's.
func QueueAppliedCondition(queues []string, faults []Failure) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionQueueApplied, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplied}
	if said := JoinFailures(faults, func(f Failure) bool { return f.AffectsQueue }); said != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonObjectsRefused, TruncateMessage(said)
		return c
	}
	c.Message = "no queue is needed"
	if len(queues) > 0 {
		c.Message = TruncateMessage("applied: " + strings.Join(queues, ", "))
	}
	return c
}

// TruncateMessage is a message short enough for a condition, cut between characters.
func TruncateMessage(message string) string {
	const most = 4096
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most-len(" ...")], "") + " ..."
}

// UncountedQuotas are the names of the quotas that the quota controller has not
// counted as they are now. A quota refuses nothing that goes beyond it before
// that: admission compares with the status.
func UncountedQuotas(quotas []corev1.ResourceQuota) []string {
	var names []string
	for i := range quotas {
		if !equality.Semantic.DeepEqual(quotas[i].Spec.Hard, quotas[i].Status.Hard) {
			names = append(names, quotas[i].Name)
		}
	}
	return names
}

// EnforcedLimit is what the quotas hold somebody to in a currency, whatever the pods,
// and what is used of it; false where no quota is counted that does. Where
// there are several the tightest one holds.
func EnforcedLimit(quotas []corev1.ResourceQuota, currency corev1.ResourceName) (hard, used int64, found bool) {
	name := corev1.DefaultResourceRequestsPrefix + currency
	for i := range quotas {
		quota := &quotas[i]
		limit, ok := quota.Status.Hard[name]
		if !ok || len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
			continue
		}
		if value := limit.Value(); !found || value < hard {
			now := quota.Status.Used[name]
			hard, used, found = value, now.Value(), true
		}
	}
	return hard, used, found
}
