// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/installation"
	"sluice.dev/manifests"
	"sluice.dev/test/lab/cluster/build"
	"sluice.dev/test/lab/cluster/fakekubelet"
)

const (
	// DefaultNodes is one node with whole GPUs and one in MIG mode.
	DefaultNodes = 2
	// DefaultNodesKueue is two nodes with whole GPUs and one in MIG mode.
	DefaultNodesKueue = 3
	// MaxNodes is the number of simulated nodes, each with its agent, that two cores
	// carry easily.
	MaxNodes = 50
)

// sampleSpec describes the nodes of a cluster and the objects that share them.
type sampleSpec struct {
	// folder is its kustomization, and name its title.
	folder, name string
	// programs are built in addition to those of every cluster.
	programs []string
	// pool returns the node pool of the i-th node, from 1 on, and whether its GPUs are
	// in MIG mode.
	pool         func(i int) (name string, mig bool)
	defaultNodes int
}

// sampleSpecs are the samples by scheduler.
var sampleSpecs = map[string]sampleSpec{
	schedulerKube: {
		folder: manifests.University, name: "university", defaultNodes: DefaultNodes,
		pool: func(i int) (string, bool) {
			if i%2 == 0 {
				return "dgx-mig", true
			}
			return "dgx", false
		},
	},
	schedulerKueue: {
		folder: manifests.Fairness, name: "four teams", defaultNodes: DefaultNodesKueue,
		programs: []string{build.Kueue},
		pool: func(i int) (string, bool) {
			if i%3 == 0 {
				return "mig", true
			}
			return "whole", false
		},
	},
}

func (o Options) sample() sampleSpec { return sampleSpecs[o.Scheduler] }

// nodes returns the simulated nodes: dgx-1, dgx-2, ...
func (o Options) nodes() []fakekubelet.Node { return o.sample().nodes(o.Nodes) }

func (s sampleSpec) nodes(n int) []fakekubelet.Node {
	list := make([]fakekubelet.Node, 0, n)
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("dgx-%d", i)
		if pool, mig := s.pool(i); mig {
			list = append(list, fakekubelet.DGXA100MIG(name, pool))
		} else {
			list = append(list, fakekubelet.DGXA100(name, pool))
		}
	}
	return list
}

// sampleAppliedAnnotation marks the simulation's namespace after the sample was
// applied. A later run keeps what a user changed in it.
const sampleAppliedAnnotation = "sim.sluice.dev/university"

// installSample applies a sample to a new cluster, and waits until lifecycle has
// reconciled it.
func installSample(ctx context.Context, c client.Client, s sampleSpec) error {
	var namespace corev1.Namespace
	if err := c.Get(ctx, types.NamespacedName{Name: simulationNamespace}, &namespace); err != nil {
		return fmt.Errorf("get namespace %s: %w", simulationNamespace, err)
	}
	if namespace.Annotations[sampleAppliedAnnotation] != "" {
		return nil
	}
	objects, err := manifests.Build(s.folder)
	if err != nil {
		return err
	}
	if err := applyObjects(ctx, c, objects); err != nil {
		return err
	}
	before := namespace.DeepCopy()
	metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, sampleAppliedAnnotation, "applied")
	if err := c.Patch(ctx, &namespace, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("annotate namespace %s: %w", simulationNamespace, err)
	}
	return installation.WaitFor(ctx, "the sample ("+s.name+") to be ready", func(ctx context.Context) (bool, error) {
		return sampleReady(ctx, c)
	})
}

func sampleReady(ctx context.Context, c client.Client) (bool, error) {
	var pools v1alpha1.NodePoolList
	var departments v1alpha1.DepartmentList
	var projects v1alpha1.ProjectList
	if err := errors.Join(c.List(ctx, &pools), c.List(ctx, &departments), c.List(ctx, &projects)); err != nil {
		return false, err
	}
	for i := range pools.Items {
		// A cluster with one node has none for the second pool, which is not Ready then.
		if status := pools.Items[i].Status; status.ObservedGeneration == 0 {
			return false, fmt.Errorf("node pool %s: %s", pools.Items[i].Name, readyMessage(status.Conditions))
		}
	}
	for i := range projects.Items {
		if status := projects.Items[i].Status; !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
			return false, fmt.Errorf("project %s: %s", projects.Items[i].Name, readyMessage(status.Conditions))
		} else if !usageCounted(status.GPU) || status.PoolSummary == "" && len(projects.Items[i].Spec.NodePools) > 0 {
			return false, fmt.Errorf("project %s: lifecycle has not counted its usage yet", projects.Items[i].Name)
		}
	}
	for i := range departments.Items {
		if d := &departments.Items[i]; !usageCounted(d.Status.GPU) || d.Status.PoolSummary == "" && len(d.Spec.NodePools) > 0 {
			return false, fmt.Errorf("department %s: lifecycle has not counted its usage yet", departments.Items[i].Name)
		}
	}
	return true, nil
}

// usageCounted reports whether the status has its numbers, also if they are zero: only an
// absent quantity has no format.
func usageCounted(usage v1alpha1.GPUUsage) bool {
	return usage.Allocated.Format != "" && usage.Pending.Format != ""
}

func readyMessage(conditions []metav1.Condition) string {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Message
	}
	return "lifecycle has not reconciled it yet"
}
