// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package excess ends the newest GPU pods that exceed a limit whose counter lags.
//
// The API server counts the limit of a project in a ResourceQuota. After pods were deleted,
// Kubernetes' quota controller counts again, without the pods that are being created at that
// moment, and so more pods than the limit may be admitted (docs/platform/schedulers.md).
//
// The package reads the GPU pods, the rendered quotas and the Projects. Whenever GPU pods appear,
// it compares what they hold with the limit in force, and ends the newest until the others are
// within it. It reports this in the condition LimitExceeded, in events on the pods and the
// project, and in metrics.
//
// It never ends pods that are older than the limit: a limit that is lowered ends no running work.
// Since when a limit is in force is not stored; after a start of the process all pods are older.
// It ends no pods that the quota does not count, and none of schedulers that count by themselves.
package excess

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/lifecycle/timelimit/suspend"
)

// Reconciler holds the limits of projects.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// Evictor ends pods.
	Evictor Evictor
	// Events records which pods were ended, on them and on their project.
	Events events.EventRecorder

	pods podReader

	mu sync.Mutex
	// limits has the limits in force by quota and resource.
	limits limits
	// ended are the pods that were ended and may not be gone yet.
	ended map[types.UID]bool
	// last describes the last excess of each project.
	last map[string]string
}

// Evictor evicts pods: a suspend.Stopper.
type Evictor interface {
	EvictPod(ctx context.Context, pod suspend.Target, gracePeriod *int64, message string) error
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
	return ctrl.NewControllerManagedBy(mgr).
		Named("excess").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}).
		Watches(&corev1.ResourceQuota{}, r.quotaHandler()).
		WatchesRawSource(podcache.Source(pods, requestsForPod)).
		Complete(apply.RequeueOnConflict(r))
}

func (r *Reconciler) initState(pods podReader) {
	r.pods, r.limits, r.ended, r.last = pods, limits{}, map[types.UID]bool{}, map[string]string{}
}

// Reconcile implements reconcile.Reconciler for the project of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var project v1alpha1.Project
	if err := r.Client.Get(ctx, req.NamespacedName, &project); err != nil {
		r.forgetProject(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !project.DeletionTimestamp.IsZero() || project.Status.Namespace == nil {
		return reconcile.Result{}, nil // the deletion ends all pods
	}
	var quotas corev1.ResourceQuotaList
	namespace := project.Status.Namespace.Name
	err := r.Client.List(ctx, &quotas, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelProject: project.Name})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("list quotas of project %s: %w", project.Name, err)
	}
	now := policytime.MachineNow()
	var exceeded []scope
	for i := range quotas.Items {
		for _, s := range quotaScopes(&project, &quotas.Items[i]) {
			s.decision = Decide(s.selectPods(r.pods.InNamespace(namespace)), r.observeLimit(s.key, s.limit, now))
			if s.decision.Excess > 0 {
				exceeded = append(exceeded, s)
			}
		}
	}
	slices.SortFunc(exceeded, func(a, b scope) int { return strings.Compare(a.key, b.key) })
	err = r.endExcess(ctx, &project, exceeded)
	condition := r.condition(&project, exceeded, metav1.NewTime(now))
	return reconcile.Result{}, errors.Join(err, r.applyCondition(ctx, &project, condition))
}

// observeLimit returns a limit with the time since which it is in force.
func (r *Reconciler) observeLimit(key string, limit Limit, now time.Time) Limit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limits.observe(key, limit.Milli, now)
}

// endExcess ends the pods that the decisions name, and reports each of them once.
func (r *Reconciler) endExcess(ctx context.Context, project *v1alpha1.Project, exceeded []scope) error {
	var problems []error
	for i := range exceeded {
		s := &exceeded[i]
		var ended []*podcache.Pod
		for _, pod := range s.decision.End {
			if r.isEnded(pod.UID) {
				continue
			}
			grace := gracePeriod(pod, policytime.MachineNow())
			if err := r.Evictor.EvictPod(ctx, targetOf(pod), grace, s.describeForPod(grace)); err != nil {
				problems = append(problems, err)
				continue
			}
			r.markEnded(pod.UID)
			ended = append(ended, pod)
		}
		if len(ended) > 0 {
			r.report(ctx, project, s, ended)
		}
	}
	return errors.Join(problems...)
}

// report records that pods were ended.
func (r *Reconciler) report(ctx context.Context, project *v1alpha1.Project, s *scope, ended []*podcache.Pod) {
	now := policytime.MachineNow()
	summary := s.describe() + "; ended the newest: " + joinNames(ended)
	log.FromContext(ctx).Info("Ended pods above limit", "project", project.Name, "quotaResource", s.resource,
		"limit", s.limit.Milli.String(), "excess", s.decision.Excess.String(), "pods", len(ended))
	observeExcess(s.decision.Excess, len(ended), now.Sub(ended[0].CreatedAt))
	r.Events.Eventf(project, nil, corev1.EventTypeWarning, reasonLimitExceeded, "EndPods", "%s", summary)
	for _, pod := range ended {
		r.Events.Eventf(referTo(pod), nil, corev1.EventTypeWarning, reasonLimitExceeded, "EndPods", "%s", s.describeForPod(gracePeriod(pod, now)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[project.Name] = fmt.Sprintf("at %s %s", now.UTC().Format("2006-01-02T15:04:05Z07:00"), summary)
}

func targetOf(pod *podcache.Pod) suspend.Target {
	return suspend.Target{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

func referTo(pod *podcache.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

func (r *Reconciler) isEnded(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended[uid]
}

// markEnded remembers that a pod was ended, and forgets those that are being deleted or gone.
func (r *Reconciler) markEnded(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for known := range r.ended {
		if pod, exists := r.pods.ByUID(known); !exists || pod.Deleting {
			delete(r.ended, known)
		}
	}
	r.ended[uid] = true
}

func (r *Reconciler) forgetProject(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, name)
}
