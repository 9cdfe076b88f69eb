// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package excess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
)

// reconcileDepartment holds the limits of a department in node pools that count each project alone.
// The limits of its projects hold them already, unless they add up to more.
func (r *Reconciler) reconcileDepartment(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var department v1alpha1.Department
	if err := r.Client.Get(ctx, req.NamespacedName, &department); err != nil {
		r.forgetHolder(holder{"department", req.Name})
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var projects v1alpha1.ProjectList
	if err := r.Client.List(ctx, &projects, client.MatchingFields{inventory.ProjectsByDepartment: department.Name}); err != nil {
		return reconcile.Result{}, fmt.Errorf("list projects of department %s: %w", department.Name, err)
	}
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return reconcile.Result{}, fmt.Errorf("list node pools: %w", err)
	}
	now := policytime.MachineNow()
	var exceeded []scope
	scopes := r.departmentScopes(&department, projects.Items, pools.Items, now)
	ended := map[types.UID]bool{}
	if len(scopes) > 0 {
		var err error
		if ended, err = r.endedByProjects(ctx, projects.Items, now); err != nil {
			return reconcile.Result{}, err
		}
	}
	announced := r.announcedIn(projects.Items)
	var result reconcile.Result
	for _, s := range scopes {
		s.decision = DecideDepartment(r.podsOfProjects(projects.Items, &s, ended), s.guarantees, s.limit)
		served, next := s.rounds.serve(s.decision.Claims, now)
		s.decision.preempt(served, announced)
		if next > 0 && (result.RequeueAfter == 0 || next < result.RequeueAfter) {
			result.RequeueAfter = next
		}
		if s.decision.Excess > 0 {
			exceeded = append(exceeded, s)
		}
	}
	err := errors.Join(r.reclaim(ctx, &department, exceeded, announced), r.endExcess(ctx, &department, exceeded))
	h, conditions := holder{"department", department.Name}, department.Status.Conditions
	condition := r.condition(h, conditions, exceeded, department.Generation, now)
	return result, errors.Join(err, r.applyCondition(ctx, h, conditions, condition,
		func(applied ...*metav1ac.ConditionApplyConfiguration) runtime.ApplyConfiguration {
			return ac.Department(department.Name).WithStatus(ac.DepartmentStatus().WithConditions(applied...))
		}))
}

// departmentState is what a pass remembers of a department for the next one.
type departmentState struct {
	// limits are the limits in force by node pool. A pool that does not count is forgotten.
	limits limits
	// members has the UIDs of its projects and since when they belong to it.
	members map[types.UID]time.Time
	// rounds are the last rounds of announcements by node pool. After a start of the process a round may
	// follow sooner; what is announced stays chosen.
	rounds map[string]rounds
	// preempted are the pods that the last pass chose, and whether their announcement is complete. Nil before
	// the first pass.
	preempted map[types.UID]bool
}

// departmentScopes returns what the limits of a department count where those of its projects add up to
// more. It observes all of its limits. The pods of a project that moves into the department continue, as
// those that are older than the limit.
func (r *Reconciler) departmentScopes(
	department *v1alpha1.Department, projects []v1alpha1.Project, pools []v1alpha1.NodePool, now time.Time,
) []scope {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.departments[department.Name]
	after := departmentState{limits{}, map[types.UID]time.Time{}, map[string]rounds{}, before.preempted}
	r.departments[department.Name] = after
	countedSince := map[string]time.Time{}
	for i := range projects {
		since, known := before.members[projects[i].UID]
		if !known {
			since = writtenAt(&projects[i], now)
		}
		after.members[projects[i].UID] = since
		if namespace := projects[i].Status.Namespace; namespace != nil {
			countedSince[namespace.Name] = since
		}
	}
	var scopes []scope
	for _, subscription := range tenancy.Subscriptions(department, projects, pools, "") {
		if !subscription.Limit {
			continue
		}
		since := writtenAt(department, now)
		for i := range pools {
			if pool := &pools[i]; pool.Name == subscription.NodePool && writtenAt(pool, now).After(since) {
				since = writtenAt(pool, now) // its scheduler counted before
			}
		}
		s := scope{
			key: string(department.UID) + "/" + subscription.NodePool, holder: holder{"department", department.Name},
			resource: v1alpha1.ResourceGPUMilliFor(subscription.NodePool),
		}
		if known, ok := before.limits[s.key]; ok {
			after.limits[s.key] = known
		}
		s.guarantees, s.rounds = guaranteesOf(projects, subscription.NodePool), rounds{}
		for namespace, last := range before.rounds[s.key] {
			if _, isMember := s.guarantees[namespace]; isMember {
				s.rounds[namespace] = last
			}
		}
		after.rounds[s.key] = s.rounds
		s.limit = after.limits.observe(s.key, workload.Milli(subscription.Quota.MilliValue()), since)
		s.limit.CountedSince = countedSince
		if subscription.IsOversubscribed() {
			scopes = append(scopes, s)
		}
	}
	return scopes
}

// guaranteesOf returns the guarantees of projects in a node pool by namespace.
func guaranteesOf(projects []v1alpha1.Project, pool string) map[string]workload.Milli {
	guarantees := map[string]workload.Milli{}
	for i := range projects {
		if namespace := projects[i].Status.Namespace; namespace != nil {
			guarantees[namespace.Name] = 0
			for _, quota := range projects[i].Spec.NodePools {
				if quota.Name == pool {
					guarantees[namespace.Name] = workload.Milli(quota.GPU.Guaranteed.MilliValue())
				}
			}
		}
	}
	return guarantees
}

// writtenAt returns when an object was last written, except for its status; now if that is unknown. After a
// start of the process it is the time since which the limits that follow from the object are in force, or a
// later one.
func writtenAt(object metav1.Object, now time.Time) time.Time {
	if last := lastWrite(object); !last.IsZero() && last.Before(now) {
		return last
	}
	return now
}

func lastWrite(object metav1.Object) (last time.Time) {
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// CacheTransform returns a transform for the cache of Departments, Projects and NodePools that keeps of the
// managed fields when the object was last written.
func CacheTransform() cache.TransformFunc {
	return func(object any) (any, error) {
		o, err := meta.Accessor(object)
		if err != nil {
			return nil, fmt.Errorf("trim the managed fields of a %T: %w", object, err)
		}
		var fields []metav1.ManagedFieldsEntry
		if last := lastWrite(o); !last.IsZero() {
			fields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: last}}}
		}
		o.SetManagedFields(fields)
		return object, nil
	}
}

// endedByProjects returns the pods that end because they exceed the limit of their own project.
func (r *Reconciler) endedByProjects(ctx context.Context, projects []v1alpha1.Project, now time.Time) (map[types.UID]bool, error) {
	ended := map[types.UID]bool{}
	for i := range projects {
		if projects[i].Status.Namespace == nil {
			continue
		}
		exceeded, err := r.decideProject(ctx, r.Client, &projects[i], now)
		if err != nil {
			return nil, err
		}
		for j := range exceeded {
			for _, pod := range exceeded[j].decision.End {
				ended[pod.UID] = true
			}
		}
	}
	return ended, nil
}

// podsOfProjects returns the pods of the projects that are charged in the scope's resource, without those
// that their project ends, and those that terminate. Nothing refuses a pod at admission because its
// department is full: while the pod that it replaces terminates, a controller would create it and lifecycle
// would end it again and again. So pods that terminate may exceed a department's limit until they end,
// within the limits of their projects.
func (r *Reconciler) podsOfProjects(projects []v1alpha1.Project, s *scope, ended map[types.UID]bool) []*podcache.Pod {
	var pods []*podcache.Pod
	for i := range projects {
		if namespace := projects[i].Status.Namespace; namespace != nil {
			pods = append(pods, s.selectPods(r.pods.InNamespace(namespace.Name))...)
		}
	}
	return slices.DeleteFunc(pods, func(pod *podcache.Pod) bool { return pod.Deleting || ended[pod.UID] })
}

// requestsForDepartmentOf returns the request for the department of a pod whose charge changed.
func (r *Reconciler) requestsForDepartmentOf(c podcache.Change) []reconcile.Request {
	requests := requestsForPod(c)
	if len(requests) == 0 {
		return nil
	}
	var project v1alpha1.Project
	if err := r.Client.Get(context.Background(), requests[0].NamespacedName, &project); err != nil {
		if client.IgnoreNotFound(err) != nil {
			log.Log.Error(err, "Failed to get the project of a pod", "project", requests[0].Name)
		}
		return nil
	}
	return requestFor(project.Spec.Department)
}

// requestsForPool returns the requests for the departments that have a limit in a node pool.
func (r *Reconciler) requestsForPool(ctx context.Context, pool client.Object) (requests []reconcile.Request) {
	var departments v1alpha1.DepartmentList
	if err := r.Client.List(ctx, &departments); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list departments")
		return nil
	}
	for i := range departments.Items {
		department := &departments.Items[i]
		if slices.ContainsFunc(department.Spec.NodePools, func(q v1alpha1.PoolQuota) bool { return q.Name == pool.GetName() }) {
			requests = append(requests, requestFor(department.Name)...)
		}
	}
	return requests
}

// requestForObject returns the request for a department, or for that of a project.
func requestForObject(_ context.Context, object client.Object) []reconcile.Request {
	if project, ok := object.(*v1alpha1.Project); ok {
		return requestFor(project.Spec.Department)
	}
	return requestFor(object.GetName())
}
