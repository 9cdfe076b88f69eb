// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package excess

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/input"
)

// holder is what has a limit: a project or a department.
type holder struct{ kind, name string }

// String returns "project thesis".
func (h holder) String() string { return h.kind + " " + h.name }

// scope is what one limit counts, with the decision about it.
type scope struct {
	// key identifies the limit.
	key string
	// holder has the limit.
	holder holder
	// resource is the GPU quota resource that is counted.
	resource corev1.ResourceName
	limit    Limit
	decision Decision
	// guaranteed is what of it is guaranteed to the project. A department has the guarantees of its projects
	// by namespace instead, and the rounds of announcements for them.
	guaranteed workload.Milli
	guarantees map[string]workload.Milli
	rounds     rounds
	// otherQuotas are the ResourceQuotas of the namespace beside the project's.
	otherQuotas []string
}

// quotaScopes returns what a project's ResourceQuota counts of GPUs: for each GPU quota unit all pods
// that are charged in it. What exceeds the guarantee is within the limit.
func quotaScopes(project *v1alpha1.Project, quota *corev1.ResourceQuota) []scope {
	var scopes []scope
	for name, hard := range quota.Status.Hard {
		resource, ok := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
		if !ok || !v1alpha1.IsGPUMilli(corev1.ResourceName(resource)) {
			continue
		}
		scopes = append(scopes, scope{
			key: string(quota.UID) + "/" + resource, holder: holder{"project", project.Name},
			resource: corev1.ResourceName(resource), limit: Limit{Milli: workload.Milli(hard.Value())},
			guaranteed: guaranteedOf(quota, corev1.ResourceName(resource)),
		})
	}
	return scopes
}

// guaranteedOf returns what a quota guarantees of a GPU quota unit. The unit that several pools share has
// the guarantees of all pools without a unit of their own.
func guaranteedOf(quota *corev1.ResourceQuota, unit corev1.ResourceName) (sum workload.Milli) {
	for name, hard := range quota.Status.Hard {
		own, isGuarantee := v1alpha1.LimitMilli(corev1.ResourceName(strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix)),
			func(unit corev1.ResourceName) bool {
				_, counted := quota.Status.Hard[corev1.DefaultResourceRequestsPrefix+unit]
				return counted
			})
		if isGuarantee && own == unit {
			sum += workload.Milli(hard.Value())
		}
	}
	return sum
}

// decideProject returns the exceeded limits of a project with the decision about each. A unit in which
// the project has no node pool any more is not exceeded by the pods that continue there. It reads the quotas
// from the given reader.
func (r *Reconciler) decideProject(
	ctx context.Context, quotas client.Reader, project *v1alpha1.Project, now time.Time,
) (exceeded []scope, err error) {
	target := apply.ProjectTarget(project)
	target.Namespace = project.Status.Namespace.Name
	quota, others, err := apply.ListQuotas(ctx, quotas, target)
	if err != nil || quota == nil {
		return nil, err
	}
	for _, s := range quotaScopes(project, quota) {
		s.otherQuotas = others
		s.decision = Decide(s.selectPods(r.pods.InNamespace(target.Namespace)), s.guaranteed, r.observeLimit(s.key, s.limit, now), now)
		if s.decision.Excess > 0 {
			exceeded = append(exceeded, s)
		}
	}
	if len(exceeded) == 0 {
		return nil, nil
	}
	var pools v1alpha1.NodePoolList
	if err := r.Client.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("list node pools: %w", err)
	}
	units := map[corev1.ResourceName]bool{}
	for i := range pools.Items {
		if slices.ContainsFunc(project.Spec.NodePools, func(q v1alpha1.PoolQuota) bool { return q.Name == pools.Items[i].Name }) {
			units[input.QuotaResource(&pools.Items[i])] = true
		}
	}
	exceeded = slices.DeleteFunc(exceeded, func(s scope) bool { return !units[s.resource] && !s.decision.endsPods() })
	slices.SortFunc(exceeded, func(a, b scope) int { return strings.Compare(a.key, b.key) })
	return exceeded, nil
}

// selectPods returns the pods that are charged in the scope's resource. Pods that the quota does
// not count have none.
func (s *scope) selectPods(pods iter.Seq[*podcache.Pod]) []*podcache.Pod {
	var selected []*podcache.Pod
	for pod := range pods {
		if pod.QuotaResource == s.resource {
			selected = append(selected, pod)
		}
	}
	return selected
}

// describe describes the excess: "project thesis held 11 GPUs of node pool dgx, 1 GPU more than its
// limit of 10 GPUs".
func (s *scope) describe() string {
	of := "its node pools"
	if pool, alone := strings.CutPrefix(string(s.resource), string(v1alpha1.ResourceGPUMilli)+"."); alone {
		of = "node pool " + pool
	}
	return fmt.Sprintf("%s held %s of %s, %s more than its limit of %s",
		s.holder, s.decision.Held.Describe(), of, s.decision.Excess.Describe(), s.limit.Milli.Describe())
}

// cause returns why admission did not hold the limit.
func (s *scope) cause() string {
	switch {
	case s.holder.kind == "department":
		return "its projects are counted alone and their limits add up to more"
	case len(s.otherQuotas) > 0:
		return fmt.Sprintf("the API server does not hold limits in a namespace with other ResourceQuotas, which this one has (%s)",
			strings.Join(s.otherQuotas, ", "))
	}
	return "the quota's counter lagged behind"
}

// describeForPod says on a pod why it was ended, with a grace period of its own if that is nil.
func (s *scope) describeForPod(grace *int64) string {
	text := s.describe() + ", because " + s.cause() + "; this pod was among the newest over quota and was ended"
	if grace != nil {
		text += fmt.Sprintf(" with a grace period of %d s, less than a minute after its creation", *grace)
	}
	return text + ": create it again, or let its controller do so, when GPU quota is free"
}

// maxListedPods is the number of pods that a message names; it counts the others.
const maxListedPods = 10

func joinNames(pods []*podcache.Pod) string {
	words := make([]string, 0, maxListedPods)
	for _, pod := range pods[:min(maxListedPods, len(pods))] {
		words = append(words, "pod "+pod.Namespace+"/"+pod.Name)
	}
	list := strings.Join(words, ", ")
	if more := len(pods) - maxListedPods; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// requestsForPod returns the request for the project of a pod whose charge changed.
func requestsForPod(c podcache.Change) []reconcile.Request {
	if before, after := c.Before, c.After; before != nil && after != nil && before.Milli == after.Milli &&
		before.QuotaResource == after.QuotaResource && before.Project == after.Project && before.Deleting == after.Deleting {
		return nil
	}
	return requestFor(c.Pod().Project)
}

func requestFor(project string) []reconcile.Request {
	if project == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: project}}}
}

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// quotaHandler observes each limit of a quota, in the order of its changes: the workers see only
// the last of several. Then it enqueues the quota's project.
func (r *Reconciler) quotaHandler() handler.EventHandler {
	observe := func(quota *corev1.ResourceQuota, q requestQueue) {
		for _, s := range quotaScopes(&v1alpha1.Project{}, quota) {
			r.observeLimit(s.key, s.limit, policytime.MachineNow())
		}
		for _, request := range requestFor(quota.Labels[v1alpha1.LabelProject]) {
			q.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q requestQueue) {
			if quota, ok := e.Object.(*corev1.ResourceQuota); ok && isProjectQuota(quota) {
				observe(quota, q)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q requestQueue) {
			before, ok := e.ObjectOld.(*corev1.ResourceQuota)
			quota, ok2 := e.ObjectNew.(*corev1.ResourceQuota)
			// Every pod changes the usage.
			if ok && ok2 && isProjectQuota(quota) && !equality.Semantic.DeepEqual(before.Status.Hard, quota.Status.Hard) {
				observe(quota, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ requestQueue) {
			if quota, ok := e.Object.(*corev1.ResourceQuota); ok && isProjectQuota(quota) {
				r.forgetLimits(quota)
			}
		},
	}
}

// isProjectQuota reports whether lifecycle renders the quota.
func isProjectQuota(quota *corev1.ResourceQuota) bool {
	return quota.Name == v1alpha1.QuotaName && quota.Labels[v1alpha1.LabelProject] != ""
}

// forgetLimits forgets the limits of a deleted quota.
func (r *Reconciler) forgetLimits(quota *corev1.ResourceQuota) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range quotaScopes(&v1alpha1.Project{}, quota) {
		delete(r.limits, s.key)
	}
}
