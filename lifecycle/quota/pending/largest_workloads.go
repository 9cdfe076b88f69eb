// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
)

const (
	// maxListedWorkloads is the number of workloads in a project's status.
	maxListedWorkloads = 10
	// listInterval is the shortest time between two changes of the list, in machine time.
	listInterval = 5 * time.Second
	// resolutionTime is the longest wait after a start for the workloads of all pods, in machine time: some stay unknown.
	resolutionTime = time.Minute
)

// ClockResolver finds the workloads of pods.
type ClockResolver interface {
	// ClockOf returns the name of the WorkloadClock of a pod's workload. It returns false
	// while it is unknown.
	ClockOf(pod *podcache.Pod) (types.NamespacedName, bool)
	// IsSynced reports whether the workloads of all pods of a namespace are known, also after a start.
	IsSynced(namespace string) bool
}

// holder is a workload that holds GPUs of a node pool.
type holder struct {
	clock      string // empty if it is unknown
	kind, name string // of the controller of the pods, if the clock is unknown
	pool       string
}

func (h holder) compare(other holder) int {
	return cmp.Or(cmp.Compare(h.clock, other.clock), cmp.Compare(h.kind, other.kind),
		cmp.Compare(h.name, other.name), cmp.Compare(h.pool, other.pool))
}

// observeWorkloads returns the workloads with the most GPUs of a project, and the number of the others. If the list changed
// less than listInterval ago, or workloads are unknown after a start, it returns that of the status, and when it may change.
func (r *Reconciler) observeWorkloads(
	ctx context.Context, project *v1alpha1.Project, now time.Time,
) (list []v1alpha1.WorkloadUsage, more int32, wait time.Duration, err error) {
	was := &project.Status
	if now.Sub(r.leadingSince) < resolutionTime && !r.Clocks.IsSynced(project.NamespaceName()) {
		return was.Workloads, was.MoreWorkloads, listInterval, nil
	}
	held := map[holder]workload.Milli{}
	creators := map[holder]string{}
	for pod := range r.Pods.InNamespace(project.NamespaceName()) {
		if pod.Project != project.Name || !pod.IsBound() {
			continue
		}
		h := r.holderOf(pod)
		held[h] += pod.Milli
		creators[h] = pod.CreatedBy
	}
	holders := slices.SortedFunc(maps.Keys(held), func(a, b holder) int { return cmp.Or(cmp.Compare(held[b], held[a]), a.compare(b)) })
	listed := holders[:min(len(holders), maxListedWorkloads)]
	for _, h := range listed {
		use, err := r.describeHolder(ctx, project.NamespaceName(), h, creators[h])
		if err != nil {
			return nil, 0, 0, err
		}
		use.GPUs = milliQuantity(held[h])
		list = append(list, use)
	}
	more = int32(min(len(holders)-len(listed), math.MaxInt32))
	if equality.Semantic.DeepEqual(was.Workloads, list) && was.MoreWorkloads == more {
		return list, more, 0, nil
	}
	if wait := listInterval - now.Sub(r.listedAt[project.Name]); wait > 0 {
		return was.Workloads, was.MoreWorkloads, wait, nil
	}
	r.listedAt[project.Name] = now
	return list, more, 0, nil
}

// holderOf returns the workload of a pod, or the pod's controller while its workload is unknown.
func (r *Reconciler) holderOf(pod *podcache.Pod) holder {
	if clock, known := r.Clocks.ClockOf(pod); known {
		return holder{clock: clock.Name, pool: pod.Pool}
	}
	if c := pod.Controller; c.Name != "" { // a user can write an owner reference with long names
		return holder{kind: v1alpha1.TruncateText(c.Kind, maxKindLength), name: v1alpha1.TruncateText(c.Name, maxNameLength), pool: pod.Pool}
	}
	return holder{kind: ownerKindPod, name: pod.Name, pool: pod.Pool}
}

// describeHolder returns the entry of a workload in the status, without its GPUs.
func (r *Reconciler) describeHolder(ctx context.Context, namespace string, h holder, creator string) (v1alpha1.WorkloadUsage, error) {
	use := v1alpha1.WorkloadUsage{Kind: h.kind, Name: h.name, NodePool: h.pool, CreatedBy: creator}
	if h.clock != "" {
		var clock v1alpha1.WorkloadClock
		if err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: h.clock}, &clock); client.IgnoreNotFound(err) != nil {
			return use, fmt.Errorf("get clock %s/%s: %w", namespace, h.clock, err)
		}
		use.Kind, use.Name = cmp.Or(clock.Spec.Root.Kind, "WorkloadClock"), cmp.Or(clock.Spec.Root.Name, h.clock) // created soon
		use.CreatedBy = clock.Status.CreatedBy
		if use.Since = clock.Status.RunningSince; use.Since == nil {
			use.Since = clock.Status.StartingSince
		}
	}
	use.CreatedBy = v1alpha1.TruncateText(use.CreatedBy, maxCreatorLength)
	return use, nil
}

// The longest names in the status, in bytes.
const maxKindLength, maxNameLength, maxCreatorLength = 63, 253, 1024

// workloadFields returns an entry of the list in the form in which it is applied.
func workloadFields(use *v1alpha1.WorkloadUsage) *ac.WorkloadUsageApplyConfiguration {
	fields := ac.WorkloadUsage().WithKind(use.Kind).WithName(use.Name).WithGPUs(use.GPUs)
	if use.CreatedBy != "" {
		fields.WithCreatedBy(use.CreatedBy)
	}
	if use.NodePool != "" {
		fields.WithNodePool(use.NodePool)
	}
	if use.Since != nil {
		fields.WithSince(*use.Since)
	}
	return fields
}

// holderChanged selects clocks whose entry in the list changes.
var holderChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.WorkloadClock)
	after, ok2 := e.ObjectNew.(*v1alpha1.WorkloadClock)
	return ok && ok2 && (before.Status.CreatedBy != after.Status.CreatedBy ||
		!before.Status.RunningSince.Equal(after.Status.RunningSince) ||
		!before.Status.StartingSince.Equal(after.Status.StartingSince))
}}
