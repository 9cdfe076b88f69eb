// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/render"
	"sluice.dev/policies/facts"
)

// Reasons on a Project, beside those of the API and of a refusal.
const (
	// ReasonDeleting: the project is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonObjectsRefused: something that a policy renders cannot be had; the
	// message says what, and whose it is to change that.
	ReasonObjectsRefused = render.ReasonObjectsRefused
)

// Outcome is what a pass over a project came to. After a refusal nothing else of
// it is known.
type Outcome struct {
	// Refusal is why the project cannot have its namespace; nil where it can.
	Refusal *tenancy.Refusal
	// Pools are the project's node pools that exist, MissingPools the names of those
	// that do not; both in the project's order.
	Pools        []facts.Pool
	MissingPools []string
	// Quotas are the project's, as they are now.
	Quotas []corev1.ResourceQuota
	// Queues name the objects of engines that are there for it.
	Queues []string
	// Faults are what policies render and the project cannot have.
	Faults []render.Fault
	// Strays are the GPU pods that no quota counts; known where Looked is true.
	Strays []Stray
	Looked bool
	// Full tells that they hold more than the limits, so that the namespace is not
	// governed yet.
	Full bool
}

// After how long the project is looked at again, in machine time: nobody tells
// when somebody else's object or pod goes, or a policy is quick again.
const (
	retryFault   = time.Minute
	retryPassing = 5 * time.Second
	retryStray   = 10 * time.Second
)

func (o Outcome) again() reconcile.Result {
	switch {
	case slices.ContainsFunc(o.Faults, func(f render.Fault) bool { return f.Passing }):
		return reconcile.Result{RequeueAfter: retryPassing}
	case len(o.Strays) > 0:
		return reconcile.Result{RequeueAfter: retryStray}
	case len(o.Faults) > 0:
		return reconcile.Result{RequeueAfter: retryFault}
	default:
		return reconcile.Result{}
	}
}

// counted tells whether the project's quotas are all there and in force.
func (o Outcome) counted() bool { return o.quotaProblem() == nil }

// problem is why a condition is not true.
type problem struct{ reason, message string }

// quotaProblem is why quotas are not in force; nil where all are.
func (o Outcome) quotaProblem() *problem {
	if o.Refusal != nil {
		return &problem{o.Refusal.Reason, o.Refusal.Message}
	}
	if o.Full {
		return noRoom(o.Pools, o.Strays)
	}
	if faults := render.Texts(o.Faults, func(f render.Fault) bool { return f.Quota }); faults != "" {
		return &problem{ReasonObjectsRefused, faults}
	}
	if names := render.Uncounted(o.Quotas); len(names) > 0 {
		return &problem{
			v1alpha1.ReasonQuotaNotCounted,
			"waiting until the quota controller has counted " + strings.Join(names, ", ") + "; GPU pods are refused until then",
		}
	}
	return nil
}

// problems are all that keeps the project from being as its spec asks, the
// gravest first.
func (o Outcome) problems() []problem {
	var all []problem
	if quota := o.quotaProblem(); quota != nil {
		all = append(all, *quota)
	}
	if faults := render.Texts(o.Faults, func(f render.Fault) bool { return !f.Quota }); faults != "" {
		all = append(all, problem{ReasonObjectsRefused, faults})
	}
	if len(o.MissingPools) > 0 {
		all = append(all, problem{v1alpha1.ReasonNodePoolMissing, fmt.Sprintf(
			"spec.nodePools: there is no node pool %s; create it, or take it out", strings.Join(o.MissingPools, ", "))})
	}
	return all
}

// queues is the condition of the project's queues.
func (o Outcome) queues() metav1.Condition {
	if o.Full {
		return condition(v1alpha1.ConditionQueueApplied, "", "", *noRoom(o.Pools, o.Strays))
	}
	return render.QueueApplied(o.Queues, o.Faults)
}

// condition is true with the reason and message given, or false for the
// problems.
func condition(kind, reason, message string, problems ...problem) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	if len(problems) == 0 {
		return c
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, problems[0].reason, problems[0].message
	for _, p := range problems[1:] {
		if p.reason != c.Reason {
			c.Reason = v1alpha1.ReasonSeveral
		}
		c.Message += "; " + p.message
	}
	return c
}

// conditions are those of a project that is not being deleted.
func (o Outcome) conditions(project *v1alpha1.Project) []metav1.Condition {
	if o.Refusal != nil {
		// Of the quotas nothing new is known, so that what was said of them stays,
		// for the generation of which it was said.
		return []metav1.Condition{condition(v1alpha1.ConditionReady, "", "", *o.quotaProblem())}
	}
	var quota []problem
	if p := o.quotaProblem(); p != nil {
		quota = append(quota, *p)
	}
	conditions := []metav1.Condition{
		condition(v1alpha1.ConditionReady, v1alpha1.ReasonReady,
			fmt.Sprintf("namespace %s is governed", project.NamespaceName()), o.problems()...),
		condition(v1alpha1.ConditionQuotaApplied, v1alpha1.ReasonApplied,
			fmt.Sprintf("%d quotas are counted", len(o.Quotas)), quota...),
		o.queues(),
	}
	if o.Looked {
		conditions = append(conditions, uncountedCondition(o.Pools, o.Strays))
	}
	return conditions
}
