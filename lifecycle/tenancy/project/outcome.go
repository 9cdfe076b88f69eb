// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/input"
)

// Reasons on a Project, beside those of the API and of a refusal.
const (
	// ReasonDeleting: the project is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonObjectsRefused: an object that a policy renders could not be applied. The
	// message names the object, the reason and what to do.
	ReasonObjectsRefused = apply.ReasonObjectsRefused
)

// Outcome is the result of a pass over a project. With a ClaimError nothing else is known.
type Outcome struct {
	// ClaimError is why the project cannot have its namespace, or nil.
	ClaimError *tenancy.ClaimError
	// DepartmentExcess is why no quota was rendered: the limits of the department's projects exceed its
	// own. Nil if it was.
	DepartmentExcess *problem
	// Pools are the project's node pools that exist, MissingPools the names of the
	// others; both in the project's order.
	Pools        []input.NodePool
	MissingPools []string
	// Quota is the project's ResourceQuota; nil without one. OtherQuotas are the names of the others in
	// the namespace.
	Quota       *corev1.ResourceQuota
	OtherQuotas []string
	// Queues are the kinds and names of its applied objects of queue kinds.
	Queues []string
	// Failures are the rendered objects that could not be applied.
	Failures []apply.Failure
	// Uncounted are the GPU pods that no quota counts; known if UncountedObserved is true.
	Uncounted         []UncountedPod
	UncountedObserved bool
	// OccupiedSettling reports that a node reports GPUs of pods that are gone, which count soon.
	OccupiedSettling bool
	// DeletionWaits is what the deletion of the project waits for; nil for the deletion of the
	// namespace.
	DeletionWaits *problem
	// ExceedsLimit reports that these exceed the limits, so that the namespace is not
	// governed yet.
	ExceedsLimit bool
}

// The time until the project is reconciled again, in machine time: no event announces
// that another person's object or a pod is gone, or that a policy is fast again.
const (
	failureRequeue          = time.Minute
	transientFailureRequeue = 5 * time.Second
	uncountedPodRequeue     = 10 * time.Second
)

func (o Outcome) requeue() reconcile.Result {
	switch {
	case slices.ContainsFunc(o.Failures, func(f apply.Failure) bool { return f.Transient }):
		return reconcile.Result{RequeueAfter: transientFailureRequeue}
	case o.OccupiedSettling:
		return reconcile.Result{RequeueAfter: occupiedSettleTime}
	case len(o.Uncounted) > 0:
		return reconcile.Result{RequeueAfter: uncountedPodRequeue}
	case len(o.Failures) > 0 || o.DepartmentExcess != nil:
		return reconcile.Result{RequeueAfter: failureRequeue}
	default:
		return reconcile.Result{}
	}
}

// isQuotaApplied reports whether the project's quota is in force.
func (o Outcome) isQuotaApplied() bool { return o.quotaProblem() == nil }

// problem is a reason for which a condition is not true.
type problem struct{ reason, message string }

// quotaProblem returns why the quota is not in force, or nil.
func (o Outcome) quotaProblem() *problem {
	if o.ClaimError != nil {
		return &problem{o.ClaimError.Reason, o.ClaimError.Message}
	}
	if o.DepartmentExcess != nil {
		return o.DepartmentExcess
	}
	if o.ExceedsLimit {
		return exceededLimits(o.Pools, o.Uncounted)
	}
	if failures := apply.JoinFailures(o.Failures, func(f apply.Failure) bool { return f.AffectsQuota }); failures != "" {
		return &problem{ReasonObjectsRefused, failures}
	}
	if !apply.IsCounted(o.Quota) {
		return &problem{
			v1alpha1.ReasonQuotaNotCounted,
			"waiting until the quota controller has counted ResourceQuota " + o.Quota.Name + "; the former limits hold until then, and GPU pods of " +
				"a node pool without one are refused",
		}
	}
	return nil
}

// problems returns why the project is not as its spec requires, the gravest first.
func (o Outcome) problems() []problem {
	var all []problem
	if quota := o.quotaProblem(); quota != nil {
		all = append(all, *quota)
	}
	if failures := apply.JoinFailures(o.Failures, func(f apply.Failure) bool { return !f.AffectsQuota }); failures != "" {
		all = append(all, problem{ReasonObjectsRefused, failures})
	}
	if len(o.MissingPools) > 0 {
		all = append(all, problem{v1alpha1.ReasonNodePoolNotFound, fmt.Sprintf(
			"spec.nodePools: there is no node pool %s; create it, or remove it from the list", strings.Join(o.MissingPools, ", "))})
	}
	return all
}

// queueCondition returns the condition QueueApplied.
func (o Outcome) queueCondition() metav1.Condition {
	if o.ExceedsLimit || o.DepartmentExcess != nil {
		return newCondition(v1alpha1.ConditionQueueApplied, "", "", *o.quotaProblem())
	}
	return apply.QueueAppliedCondition(o.Queues, o.Failures)
}

// newCondition returns a true condition with the reason and message, or a false one
// with the problems.
func newCondition(kind, reason, message string, problems ...problem) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	if len(problems) == 0 {
		return c
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, problems[0].reason, problems[0].message
	for _, p := range problems[1:] {
		if p.reason != c.Reason {
			c.Reason = v1alpha1.ReasonMultipleReasons
		}
		c.Message += "; " + p.message
	}
	return c
}

// conditions returns the conditions of a project that is not being deleted.
func (o Outcome) conditions(project *v1alpha1.Project) []metav1.Condition {
	if o.ClaimError != nil {
		// Nothing new is known of the quota: its condition stays, with its generation.
		return []metav1.Condition{newCondition(v1alpha1.ConditionReady, "", "", *o.quotaProblem())}
	}
	var quota []problem
	if p := o.quotaProblem(); p != nil {
		quota = append(quota, *p)
	}
	conditions := []metav1.Condition{
		newCondition(v1alpha1.ConditionReady, v1alpha1.ReasonReady,
			fmt.Sprintf("namespace %s is governed", project.NamespaceName()), o.problems()...),
		newCondition(v1alpha1.ConditionQuotaApplied, v1alpha1.ReasonApplied,
			"the quota is counted", quota...),
		o.queueCondition(),
	}
	if o.UncountedObserved {
		conditions = append(conditions, uncountedCondition(o.Pools, o.Uncounted))
	}
	return conditions
}

// ComputeUsage returns the project's quota in GPUs by its spec, over all pools and for
// each pool whose quota is counted, with the share of uncounted pods. KAI-Scheduler counts
// for itself, without a ResourceQuota. Allocated and pending are unknown here and keep their
// values.
func ComputeUsage(
	project *v1alpha1.Project, pools []input.NodePool, quota *corev1.ResourceQuota, pods []UncountedPod,
) (v1alpha1.GPUUsage, []v1alpha1.PoolUsage) {
	was := &project.Status
	all := v1alpha1.GPUUsage{Allocated: was.GPU.Allocated, Pending: was.GPU.Pending}
	for _, pool := range project.Spec.NodePools {
		all.Guaranteed.Add(pool.GPU.Guaranteed)
		all.Limit.Add(pool.GPU.MaxInUse())
	}
	all.Guaranteed, all.Limit = normalizeQuantity(all.Guaranteed), normalizeQuantity(all.Limit)

	uncounted := sumUncountedByPool(pods)
	var each []v1alpha1.PoolUsage
	for i := range pools {
		pool := &pools[i]
		if _, _, counted := apply.EnforcedLimit(quota, pool.QuotaResource); !counted && pool.Scheduler != v1alpha1.SchedulerKAI {
			continue
		}
		use := v1alpha1.PoolUsage{Name: pool.Name}
		if at := slices.IndexFunc(was.NodePools, func(use v1alpha1.PoolUsage) bool { return use.Name == pool.Name }); at >= 0 {
			use.Allocated, use.Pending = was.NodePools[at].Allocated, was.NodePools[at].Pending
			use.Unscheduled = was.NodePools[at].Unscheduled
		}
		use.Guaranteed, use.Limit = gpuQuantity(int64(pool.Guaranteed)), gpuQuantity(int64(pool.Limit))
		use.Uncounted = gpuQuantity(int64(uncounted[pool.Name]))
		each = append(each, use)
	}
	v1alpha1.SetOverQuota(&all, each)
	return all, each
}

// gpuQuantity returns thousandths of GPUs in the form 500m, 1 or 1500m.
func gpuQuantity(milli int64) resource.Quantity {
	return *resource.NewMilliQuantity(milli, resource.DecimalSI)
}

// normalizeQuantity returns the same quantity in that form.
func normalizeQuantity(q resource.Quantity) resource.Quantity { return gpuQuantity(q.MilliValue()) }
