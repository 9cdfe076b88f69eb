// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package excess ends the newest GPU pods that exceed a limit that admission cannot hold.
//
// The API server counts the limit of a project in a ResourceQuota. After pods were deleted,
// Kubernetes' quota controller counts again, without the pods that are being created at that
// moment, and so more pods than the limit may be admitted (docs/platform/schedulers.md). The same
// happens where the namespace has a second ResourceQuota. In node pools of kube-scheduler and YuniKorn
// nothing counts the limit of a department: where it allows that the limits of its projects add up to
// more, they can hold more together. What exceeds the limit of a project is that project's excess, and
// none of its department.
//
// The package reads the GPU pods, the rendered quotas, the Projects, Departments and NodePools. Whenever
// GPU pods appear, it compares what they hold with the limit in force, and ends the newest over quota until
// the others are within it. A pod within its project's guarantee is not ended for others: pods over quota are
// preempted for it, and its department stays over the limit until they have had their announcement. It reports
// this in the condition LimitExceeded, in events on the pods and on the project or department, and in metrics.
//
// It never ends pods that are older than the limit: a limit that is lowered ends no running work.
// After a start of the process, the limit of a department is in force since the last write of the
// Department or NodePool, that of a project since the start: all pods of the project are older.
// It ends no pods that the quota does not count, and none of schedulers that count by themselves.
package excess

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
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
	"sluice.dev/lifecycle/timelimit/suspend"
)

// Reconciler holds the limits of projects, and those of departments whose projects can hold more
// together.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Live reads quotas from the API server before a pod ends.
	Live client.Reader
	// Evictor ends pods.
	Evictor Evictor
	// Announcer announces the preemption of pods, and Announced are those that are announced.
	Announcer Announcer
	Announced eviction.AnnouncedPods
	// Events records which pods were ended, on them and on their project or department.
	Events events.EventRecorder

	pods podReader

	mu sync.Mutex
	// limits has the limits of projects in force by quota and resource.
	limits limits
	// ended are the pods that were ended and may not be gone yet.
	ended map[types.UID]bool
	// last describes the last excess of each holder.
	last map[string]string
	// events limits the events about each holder.
	events map[string]flowcontrol.PassiveRateLimiter
	// departments has the state of each department by name.
	departments map[string]departmentState
}

// Evictor evicts pods: a suspend.Stopper.
type Evictor interface {
	EvictPod(ctx context.Context, pod suspend.Target, gracePeriod *int64, message string) error
}

// Announcer announces and withdraws evictions: an eviction.Announcer.
type Announcer interface {
	Announce(ctx context.Context, announcement eviction.Announcement) error
	Withdraw(ctx context.Context, announcement eviction.Announcement, why string) error
}

// podReader reads the GPU pods: a podcache.Store.
type podReader interface {
	InNamespace(namespace string) iter.Seq[*podcache.Pod]
	ByUID(uid types.UID) (*podcache.Pod, bool)
}

// maxConcurrentReconciles keeps an excess from waiting for the API server's answers about another
// project.
const maxConcurrentReconciles = 8

// SetupWithManager makes the manager run r once all GPU pods are known.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pods *podcache.Store) error {
	r.initState(pods)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("excess").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}).
		For(&v1alpha1.Project{}, builder.WithPredicates(reportedExceeded)).
		Watches(&corev1.ResourceQuota{}, r.quotaHandler()).
		WatchesRawSource(podcache.Source(pods, requestsForPod)).
		Complete(apply.RequeueOnConflict(r))
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("excess-of-departments").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}).
		Watches(&v1alpha1.Department{}, handler.EnqueueRequestsFromMapFunc(requestForObject),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, reportedExceeded))).
		Watches(&v1alpha1.Project{}, handler.EnqueueRequestsFromMapFunc(requestForObject),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.NodePool{}, handler.EnqueueRequestsFromMapFunc(r.requestsForPool),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(podcache.Source(pods, r.requestsForDepartmentOf)).
		Complete(apply.RequeueOnConflict(reconcile.Func(r.reconcileDepartment)))
}

func (r *Reconciler) initState(pods podReader) {
	r.pods, r.limits, r.ended, r.last = pods, limits{}, map[types.UID]bool{}, map[string]string{}
	r.departments, r.events = map[string]departmentState{}, map[string]flowcontrol.PassiveRateLimiter{}
}

// Reconcile implements reconcile.Reconciler for the project of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	if err := r.Client.Get(ctx, req.NamespacedName, &project); err != nil {
		r.forgetHolder(holder{"project", req.Name})
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !project.DeletionTimestamp.IsZero() || project.Status.Namespace == nil {
		return reconcile.Result{}, nil // the deletion ends all pods
	}
	now := policytime.MachineNow()
	exceeded, err := r.decideProject(ctx, r.Client, &project, now)
	if slices.ContainsFunc(exceeded, func(s scope) bool { return len(s.decision.End) > 0 }) {
		// The cache can have a pod before the raised limit by which it was admitted.
		exceeded, err = r.decideProject(ctx, r.Live, &project, now)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	err = r.endExcess(ctx, &project, exceeded)
	h, conditions := holder{"project", project.Name}, project.Status.Conditions
	condition := r.condition(h, conditions, exceeded, project.Generation, now)
	return resultFor(exceeded, now), errors.Join(err, r.applyCondition(ctx, h, conditions, condition,
		func(applied ...*metav1ac.ConditionApplyConfiguration) runtime.ApplyConfiguration {
			return ac.Project(project.Name).WithStatus(ac.ProjectStatus().WithConditions(applied...))
		}))
}

// resultFor requests another pass when the first grace period ends of the pods that exceed a limit: the
// end of a pod on a lost node is no change of the pod.
func resultFor(exceeded []scope, now time.Time) (result reconcile.Result) {
	for i := range exceeded {
		if next := exceeded[i].decision.NextEnd; !next.IsZero() && (result.RequeueAfter == 0 || next.Sub(now) < result.RequeueAfter) {
			result.RequeueAfter = next.Sub(now)
		}
	}
	return result
}

// observeLimit returns a limit with the time since which it is in force.
func (r *Reconciler) observeLimit(key string, limit Limit, now time.Time) Limit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limits.observe(key, limit.Milli, now)
}

// maxConcurrentEnds is the number of pods of an excess that are ended at a time: each takes two requests,
// and the API server that admitted the excess is busy.
const maxConcurrentEnds = 16

// endExcess ends the pods that the decisions name, and reports each of them once, on them and on the
// object that has the limits.
func (r *Reconciler) endExcess(ctx context.Context, object client.Object, exceeded []scope) error {
	var problems []error
	for i := range exceeded {
		s, now := &exceeded[i], policytime.MachineNow()
		failures := make([]error, len(s.decision.End))
		var claimed []int
		var ends errgroup.Group
		ends.SetLimit(maxConcurrentEnds)
		for at, pod := range s.decision.End {
			if !r.claimEnd(pod.UID) {
				continue
			}
			claimed = append(claimed, at)
			ends.Go(func() error {
				grace := gracePeriod(pod, now)
				failures[at] = r.Evictor.EvictPod(ctx, targetOf(pod), grace, s.describeForPod(grace))
				return nil
			})
		}
		_ = ends.Wait() // each has its own failure
		var ended []*podcache.Pod
		for _, at := range claimed {
			pod := s.decision.End[at]
			if failures[at] != nil {
				r.releaseEnd(pod.UID)
				problems = append(problems, failures[at])
				continue
			}
			ended = append(ended, pod)
		}
		if len(ended) > 0 {
			r.report(ctx, object, s, ended, now)
		}
	}
	return errors.Join(problems...)
}

// maxEvents and eventsPerSecond limit the events about the excess of a project or department: in a full
// department, a ReplicaSet creates an ended pod again at once, and each event is an object.
const (
	maxEvents       = 20
	eventsPerSecond = 0.2
)

// mayRecord reports whether one more event about a holder may be recorded now.
func (r *Reconciler) mayRecord(h holder) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events[h.String()] == nil {
		r.events[h.String()] = flowcontrol.NewTokenBucketPassiveRateLimiter(eventsPerSecond, maxEvents)
	}
	return r.events[h.String()].TryAccept()
}

// report records that pods were ended.
func (r *Reconciler) report(ctx context.Context, object client.Object, s *scope, ended []*podcache.Pod, now time.Time) {
	summary := s.describe() + ", because " + s.cause() + "; ended the newest: " + joinNames(ended)
	log.FromContext(ctx).Info("Ended pods above limit", "holder", s.holder.String(), "quotaResource", s.resource,
		"limit", s.limit.Milli.String(), "excess", s.decision.Excess.String(), "pods", len(ended))
	observeExcess(s.decision.Excess, len(ended), now.Sub(ended[0].CreatedAt))
	if r.mayRecord(s.holder) {
		r.Events.Eventf(object, nil, corev1.EventTypeWarning, reasonLimitExceeded, "EndPods", "%s", summary)
	}
	for _, pod := range ended {
		if !r.mayRecord(s.holder) {
			break
		}
		r.Events.Eventf(referTo(pod), nil, corev1.EventTypeWarning, reasonLimitExceeded, "EndPods", "%s", s.describeForPod(gracePeriod(pod, now)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[s.holder.String()] = fmt.Sprintf("at %s %s", now.UTC().Format("2006-01-02T15:04:05Z07:00"), summary)
}

func targetOf(pod *podcache.Pod) suspend.Target {
	return suspend.Target{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

func referTo(pod *podcache.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// claimEnd remembers that a pod is ended, and forgets those that are gone. It returns false if the pod
// was ended before, maybe for another limit.
func (r *Reconciler) claimEnd(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended[uid] {
		return false
	}
	for known := range r.ended {
		if _, exists := r.pods.ByUID(known); !exists {
			delete(r.ended, known)
		}
	}
	r.ended[uid] = true
	return true
}

// releaseEnd forgets a pod that could not be ended.
func (r *Reconciler) releaseEnd(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ended, uid)
}

func (r *Reconciler) forgetHolder(h holder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, h.String())
	delete(r.events, h.String())
	if h.kind == "department" {
		delete(r.departments, h.name)
	}
}
