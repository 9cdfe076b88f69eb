// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
)

// The indices over Projects that the controllers' cache has.
const (
	// ProjectsByNamespace finds the projects that name a namespace, by default their own
	// name.
	ProjectsByNamespace = "namespaceName"
	// ProjectsByDepartment finds the projects of a department.
	ProjectsByDepartment = "spec.department"
	// ProjectsByNodePool finds the projects with a quota in a node pool.
	ProjectsByNodePool = "spec.nodePools.name"
)

// IndexProjects adds the indices to a cache.
func IndexProjects(ctx context.Context, indexer client.FieldIndexer) error {
	indices := map[string]func(*v1alpha1.Project) []string{
		ProjectsByNamespace:  func(p *v1alpha1.Project) []string { return []string{p.NamespaceName()} },
		ProjectsByDepartment: func(p *v1alpha1.Project) []string { return []string{p.Spec.Department} },
		ProjectsByNodePool:   poolNames,
	}
	for name, key := range indices {
		err := indexer.IndexField(ctx, &v1alpha1.Project{}, name, func(object client.Object) []string {
			if project, ok := object.(*v1alpha1.Project); ok {
				return key(project)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("index projects by %s: %w", name, err)
		}
	}
	return nil
}

// ProjectPools returns input.nodePools of a project: its existing node pools, in the order of its spec.
func ProjectPools(ctx context.Context, c client.Reader, project *v1alpha1.Project) ([]input.NodePool, error) {
	pools := map[string]*v1alpha1.NodePool{}
	for _, quota := range project.Spec.NodePools {
		var pool v1alpha1.NodePool
		err := c.Get(ctx, types.NamespacedName{Name: quota.Name}, &pool)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get node pool %s: %w", quota.Name, err)
		}
		if err == nil {
			pools[quota.Name] = &pool
		}
	}
	return input.NewProjectPools(project, func(name string) *v1alpha1.NodePool { return pools[name] }), nil
}

func poolNames(project *v1alpha1.Project) []string {
	names := make([]string, 0, len(project.Spec.NodePools))
	for _, quota := range project.Spec.NodePools {
		names = append(names, quota.Name)
	}
	return names
}

// ProjectForNamespace returns the project that has a namespace, or nil. It uses the project's
// status, which users cannot write. The reader must have the index [ProjectsByNamespace].
func ProjectForNamespace(ctx context.Context, cached client.Reader, namespace string) (*v1alpha1.Project, error) {
	var projects v1alpha1.ProjectList
	if err := cached.List(ctx, &projects, client.MatchingFields{ProjectsByNamespace: namespace}); err != nil {
		return nil, fmt.Errorf("find project of namespace %s: %w", namespace, err)
	}
	for i := range projects.Items {
		project := &projects.Items[i]
		if has := project.Status.Namespace; has != nil && has.Name == namespace {
			return project, nil
		}
	}
	return nil, nil
}

// TenantForNamespace returns the project of a namespace and its department, or nil.
func TenantForNamespace(ctx context.Context, cached client.Reader, namespace string) (*v1alpha1.Project, *v1alpha1.Department, error) {
	project, err := ProjectForNamespace(ctx, cached, namespace)
	if project == nil || err != nil {
		return nil, nil, err
	}
	department := &v1alpha1.Department{}
	if err := cached.Get(ctx, types.NamespacedName{Name: project.Spec.Department}, department); err != nil {
		return nil, nil, fmt.Errorf("get department %s of project %s: %w", project.Spec.Department, project.Name, err)
	}
	return project, department, nil
}

// SelectsNode reports whether the pool's selector matches the node.
func SelectsNode(pool *v1alpha1.NodePool, node *corev1.Node) bool {
	// An empty selector would match every node. The schema rejects it, too.
	return len(pool.Spec.NodeSelector) > 0 &&
		labels.SelectorFromSet(pool.Spec.NodeSelector).Matches(labels.Set(node.Labels))
}

// PoolsForNode returns the names of the pools that select the node, sorted. The node belongs to a
// pool only if it is the only one. Pools that are being deleted count until they are gone.
func PoolsForNode(node *corev1.Node, pools []v1alpha1.NodePool) []string {
	var names []string
	for i := range pools {
		if SelectsNode(&pools[i], node) {
			names = append(names, pools[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// IsNodeLost reports whether a node does not exist or is not ready, and since when it is or is not
// ready; zero if that is unknown. Nothing reports the end of the pods on a lost node.
func IsNodeLost(ctx context.Context, reader client.Reader, name string) (since time.Time, lost bool, err error) {
	var node corev1.Node
	if err := reader.Get(ctx, types.NamespacedName{Name: name}, &node); err != nil {
		return time.Time{}, apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	since, ready := Readiness(&node)
	return since, !ready, nil
}

// Readiness returns whether a node is ready, and since when it is or is not; zero if that is unknown.
func Readiness(node *corev1.Node) (since time.Time, ready bool) {
	for i := range node.Status.Conditions {
		if condition := &node.Status.Conditions[i]; condition.Type == corev1.NodeReady {
			return condition.LastTransitionTime.Time, condition.Status == corev1.ConditionTrue
		}
	}
	return time.Time{}, false
}

// SampleMaxAge is the age of a GPUNode's last sample, in machine time, from which its agent counts as
// absent. Agents write a sample at least once a minute.
const SampleMaxAge = 3 * time.Minute

// GetGPUNode returns the GPUNode of a node, or nil.
func GetGPUNode(ctx context.Context, reader client.Reader, node string) (*v1alpha1.GPUNode, error) {
	var observed v1alpha1.GPUNode
	err := reader.Get(ctx, types.NamespacedName{Name: node}, &observed)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get GPUNode %s: %w", node, err)
	}
	return &observed, nil
}

// NodeChanged selects updates that can change a node's pool, its GPUs or its resources. It drops
// heartbeats, of which a large cluster has hundreds a second.
var NodeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, ok2 := e.ObjectNew.(*corev1.Node)
		return !ok || !ok2 ||
			!maps.Equal(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity) ||
			!equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable)
	},
}

// Requests returns one request for each object of the list.
func Requests(list client.ObjectList) []reconcile.Request {
	var requests []reconcile.Request
	// It fails only if list is not a list.
	_ = meta.EachListItem(list, func(object runtime.Object) error {
		if named, ok := object.(client.Object); ok {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{
				Namespace: named.GetNamespace(), Name: named.GetName(),
			}})
		}
		return nil
	})
	return requests
}
