// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/kwok"
	"sluice.dev/test/cluster/process"
)

// retireNodes takes out what an earlier run in the folder has left of the
// simulation: the Nodes that are not in list, and all their Leases. The folder's
// lock says that nobody plays them now, and kwok would wait for a Lease to run
// out that a predecessor has held.
func retireNodes(ctx context.Context, c client.Client, list []fakekubelet.Node) error {
	var found corev1.NodeList
	if err := c.List(ctx, &found); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	for i := range found.Items {
		if node := &found.Items[i]; retired(node, list) {
			if err := c.Delete(ctx, node); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("removing node %s: %w", node.Name, err)
			}
		}
	}
	if err := c.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(corev1.NamespaceNodeLease)); err != nil {
		return fmt.Errorf("removing the nodes' leases: %w", err)
	}
	return nil
}

// retired tells whether a Node is simulated and not in list.
func retired(node *corev1.Node, list []fakekubelet.Node) bool {
	return node.Annotations[kwok.NodeAnnotation] == kwok.NodeAnnotationValue &&
		!slices.ContainsFunc(list, func(n fakekubelet.Node) bool { return n.Name == node.Name })
}

// awaitAll waits until every node is ready and every component runs.
func awaitAll(ctx context.Context, c client.Client, list []fakekubelet.Node, processes func() []process.Status) error {
	return await(ctx, "the nodes and the components to be ready", func(ctx context.Context) (bool, error) {
		errs := []error{allRun(processes())}
		for _, node := range list {
			errs = append(errs, nodeReady(ctx, c, node.Name))
		}
		err := errors.Join(errs...)
		return err == nil, err
	})
}

// nodeReady says what a node lacks. Its condition may be from an earlier run;
// its Lease, which retireNodes has removed, is from this one.
func nodeReady(ctx context.Context, c client.Client, name string) error {
	var node corev1.Node
	if err := c.Get(ctx, types.NamespacedName{Name: name}, &node); err != nil {
		return err
	}
	ready := slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
	if !ready {
		return fmt.Errorf("node %s is not ready", name)
	}
	return c.Get(ctx, types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: name}, &coordinationv1.Lease{})
}

// allRun names the components that do not run.
func allRun(list []process.Status) error {
	var errs []error
	for _, s := range list {
		if s.State != process.Running {
			errs = append(errs, fmt.Errorf("%s is in %s (%s); its log: %s", s.Name, s.State, s.LastExit, quoted(s.LogPath)))
		}
	}
	return errors.Join(errs...)
}
