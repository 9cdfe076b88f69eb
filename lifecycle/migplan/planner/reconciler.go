// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/lifecycle/timelimit/eviction"
	"sluice.dev/policies/kaigroup"
)

// Reconciler plans all pools with MIG in one pass, since a pod may use several of them.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads the pods of a node that is about to change, where the cache may lag.
	Live client.Reader
	// Pods is the pod cache. SetupWithManager must run before it starts.
	Pods *podcache.Store
	// Events records which instances are created for which pod.
	Events events.EventRecorder
	// Evictions announces the evictions of pods that give way to a pod with a guarantee; nil preempts none.
	Evictions Announcer
	// Announced are the pods whose eviction is announced; nil without Evictions.
	Announced eviction.AnnouncedPods

	pendingPods interface{ Values() []*pendingPod }
	preemptible interface{ Values() []preemptiblePod }
	written     map[string]writtenReservation
	explained   map[types.UID]string
	// complete holds by victim the claimant for which this process announced it without an error.
	complete      map[types.UID]types.UID
	observedNodes observedNodes
	usage         nodeUsage
	claimTimes    claimTimes
	state         planState
	// labelsBeforePause is lost with a restart. A change that then lacks its pods is abandoned and begun again.
	labelsBeforePause labelsBeforePause
	// preemptibleCache holds whether pods with instances may be preempted.
	preemptibleCache map[types.UID]bool
	now              func() time.Time
	speed            time.Duration // of now: 1 is that of real time
}

// conflictRequeue is the delay after a conflict, in machine time.
const conflictRequeue = 100 * time.Millisecond

// failureRequeue is the longest delay after a node could not be changed, in machine time. The queue's own would hold back other nodes.
const failureRequeue = 30 * time.Second

// maxPreemptibleLookups bounds the reads of isPreemptible in one pass.
const maxPreemptibleLookups = 64

// Reconcile observes all pools, decides, writes the actions and reports.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := r.now()
	s, err := r.observe(ctx, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	orphansErr := r.untaintOrphans(ctx, s.orphanedNodes)
	d := decide(&s.snapshot, now)
	recordMetrics(&d)
	preemptErr := r.applyPreemptions(ctx, s, &d, now)
	again, err := r.applyActions(ctx, s, &d, now)
	r.state = d.nextState
	if errors.Is(err, errConflict) {
		return reconcile.Result{RequeueAfter: conflictRequeue}, nil
	}
	// A node whose change always fails delays neither the conditions nor the other nodes.
	failed := errors.Join(orphansErr, preemptErr, err)
	if err := r.updateConditions(ctx, s, &d, now); err != nil {
		return reconcile.Result{}, errors.Join(failed, err)
	}
	var result reconcile.Result
	if !d.nextDecisionAt.IsZero() {
		result.RequeueAfter = max(d.nextDecisionAt.Sub(now)/r.speed, conflictRequeue)
	}
	switch {
	case again:
		result.RequeueAfter = conflictRequeue
	case failed != nil && (result.RequeueAfter == 0 || result.RequeueAfter > failureRequeue):
		result.RequeueAfter = failureRequeue
	}
	if failed != nil {
		log.FromContext(ctx).Error(failed, "Failed to change nodes", "retryAfter", result.RequeueAfter.String())
	}
	return result, nil
}

// updateConditions writes the condition Planned of each pool where it changed.
func (r *Reconciler) updateConditions(ctx context.Context, s *observedState, d *decision, now time.Time) error {
	lookups := 0
	conditions := d.conditions(func(pod v1alpha1.PodReference) bool { return r.isPreemptible(ctx, pod, &lookups) })
	for i, pool := range s.nodePools {
		c := conditions[i]
		c.Message = apply.TruncateMessage(c.Message)
		c.ObservedGeneration, c.LastTransitionTime = pool.Generation, metav1.NewTime(now)
		planned := slices.Clone(pool.Status.Conditions)
		meta.SetStatusCondition(&planned, c)
		if err := r.updateStatus(ctx, pool, planned); err != nil {
			return err
		}
	}
	for _, pool := range s.formerlyPlannedPools {
		if err := r.updateStatus(ctx, pool, nil); err != nil {
			return err
		}
	}
	if len(d.unmet) == 0 {
		clear(r.preemptibleCache)
	}
	return nil
}

// updateStatus applies the condition Planned, or removes it if the conditions have none.
func (r *Reconciler) updateStatus(ctx context.Context, pool *v1alpha1.NodePool, conditions []metav1.Condition) error {
	fields := func(conditions []metav1.Condition) *ac.NodePoolApplyConfiguration {
		own := apply.Conditions(conditions, v1alpha1.ConditionPlanned)
		return ac.NodePool(pool.Name).WithStatus(ac.NodePoolStatus().WithConditions(own...))
	}
	if err := apply.Status(ctx, r.Client, v1alpha1.FieldManagerPlanner, fields(pool.Status.Conditions), fields(conditions)); err != nil {
		return fmt.Errorf("write the status of node pool %s: %w", pool.Name, err)
	}
	return nil
}

// isPreemptible reports whether a pod that holds an instance has one of Sluice's preemptible
// classes. The result only explains a condition, so an unreadable pod counts as not preemptible.
func (r *Reconciler) isPreemptible(ctx context.Context, reference v1alpha1.PodReference, lookups *int) bool {
	if known, ok := r.preemptibleCache[reference.UID]; ok {
		return known
	}
	if *lookups++; *lookups > maxPreemptibleLookups {
		return false
	}
	var pod corev1.Pod
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: reference.Namespace, Name: reference.Name}, &pod); err != nil ||
		pod.UID != reference.UID {
		return false
	}
	name := pod.Spec.PriorityClassName
	r.preemptibleCache[reference.UID] = kaigroup.IsSluiceClass(name) && kaigroup.ParseClass(name).Preemptible()
	return r.preemptibleCache[reference.UID]
}

func (r *Reconciler) initialize() {
	r.observedNodes, r.usage, r.claimTimes, r.preemptibleCache = observedNodes{}, nodeUsage{}, claimTimes{}, map[types.UID]bool{}
	r.labelsBeforePause, r.written, r.explained = labelsBeforePause{}, map[string]writtenReservation{}, map[types.UID]string{}
	if r.now == nil {
		r.now, r.speed = policytime.MachineNow, 1
	}
}

// planRequest is the only request of this controller.
var planRequest = reconcile.Request{NamespacedName: client.ObjectKey{Name: "plan"}}

// SetupWithManager adds r to the manager; it runs on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.initialize()
	pods := newPendingPods(r.Pods, r.Announced)
	r.pendingPods, r.preemptible = pods, podcache.NewProjection(r.Pods, parsePreemptiblePod)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("planner").
		Watches(&v1alpha1.NodePool{}, enqueueBatched, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, enqueueBatched, builder.WithPredicates(nodeChangedPredicate)).
		Watches(&v1alpha1.GPUNode{}, enqueueBatched, builder.WithPredicates(gpuNodeChangedPredicate)).
		WatchesRawSource(pods).
		Complete(apply.RequeueOnConflict(r))
	if err != nil {
		return fmt.Errorf("set up planner: %w", err)
	}
	return nil
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// enqueueBatched requests a decision after batchDelay, since changes come in bursts.
var enqueueBatched = handler.Funcs{
	CreateFunc: func(_ context.Context, _ event.CreateEvent, q requestQueue) { q.AddAfter(planRequest, batchDelay) },
	UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q requestQueue) { q.AddAfter(planRequest, batchDelay) },
	DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q requestQueue) { q.AddAfter(planRequest, batchDelay) },
}

// nodeChangedPredicate passes changes of what a node accepts and offers.
var nodeChangedPredicate = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok || !ok2 ||
		!maps.Equal(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		before.Spec.Unschedulable != after.Spec.Unschedulable ||
		newAmounts(before.Status.Allocatable).differs(newAmounts(after.Status.Allocatable)) ||
		!slices.Equal(allocatableDevices(before), allocatableDevices(after))
}}

// gpuNodeChangedPredicate passes changes that affect a plan, and drops usage samples.
var gpuNodeChangedPredicate = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.GPUNode)
	after, ok2 := e.ObjectNew.(*v1alpha1.GPUNode)
	return !ok || !ok2 ||
		before.Generation != after.Generation ||
		before.Status.ObservedGeneration != after.Status.ObservedGeneration ||
		hasReturned(before, after) ||
		!equality.Semantic.DeepEqual(before.Status.GPUs, after.Status.GPUs) ||
		!equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions) ||
		!equality.Semantic.DeepEqual(countDeviceHolders(before), countDeviceHolders(after))
}}

// hasReturned reports whether an agent reports again after a silence.
func hasReturned(before, after *v1alpha1.GPUNode) bool {
	return after.Status.SampledAt != nil &&
		(before.Status.SampledAt == nil || after.Status.SampledAt.Sub(before.Status.SampledAt.Time) >= agentSilenceTimeout)
}

// countDeviceHolders counts the pods that hold each device.
func countDeviceHolders(node *v1alpha1.GPUNode) map[string]int {
	holders := map[string]int{}
	for i := range node.Status.Pods {
		for _, device := range node.Status.Pods[i].Devices {
			holders[device]++
		}
	}
	return holders
}
