// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/kwok"
	"sluice.dev/test/cluster/process"
)

// removeStaleNodes takes out what an earlier run in the folder has left of the
// simulation: the Nodes that are not in list, and all their Leases. The folder's
// lock says that nobody plays them now, and kwok would wait for a Lease to run
// out that a predecessor has held.
func removeStaleNodes(ctx context.Context, c client.Client, list []fakekubelet.Node) error {
	var found corev1.NodeList
	if err := c.List(ctx, &found); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	for i := range found.Items {
		if node := &found.Items[i]; isStaleNode(node, list) {
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

// isStaleNode tells whether a Node is simulated and not in list.
func isStaleNode(node *corev1.Node, list []fakekubelet.Node) bool {
	return node.Annotations[kwok.NodeAnnotation] == kwok.NodeAnnotationValue &&
		!slices.ContainsFunc(list, func(n fakekubelet.Node) bool { return n.Name == node.Name })
}

// waitForNodesAndComponents waits until every node is ready and every component runs.
func waitForNodesAndComponents(ctx context.Context, c client.Client, list []fakekubelet.Node, processes func() []process.Status) error {
	return waitFor(ctx, "the nodes and the components to be ready", func(ctx context.Context) (bool, error) {
		errs := []error{checkComponentsRunning(processes())}
		for _, node := range list {
			errs = append(errs, checkNodeReady(ctx, c, node.Name))
		}
		err := errors.Join(errs...)
		return err == nil, err
	})
}

// checkNodeReady says what a node lacks. Its condition may be from an earlier run;
// its Lease, which retireNodes has removed, is from this one.
func checkNodeReady(ctx context.Context, c client.Client, name string) error {
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

// checkComponentsRunning names the components that do not run.
func checkComponentsRunning(list []process.Status) error {
	var errs []error
	for _, s := range list {
		if s.State != process.Running {
			errs = append(errs, fmt.Errorf("%s is in %s (%s); its log: %s", s.Name, s.State, s.LastExit, shellQuote(s.LogPath)))
		}
	}
	return errors.Join(errs...)
}

// maxSocketPath is as long, in bytes, as the path of a Unix socket may be.
const maxSocketPath = 107

// podResourcesSocket is where the fake kubelet of a node serves PodResources.
func podResourcesSocket(dir, node string) string {
	return filepath.Join(dir, "nodes", node, "pod-resources", "kubelet.sock")
}

// maxDirLength is as long, in bytes, as the folder of a cluster with these nodes may be.
func maxDirLength(list []fakekubelet.Node) int {
	longest := 0
	for _, node := range list {
		longest = max(longest, len(podResourcesSocket("", node.Name)))
	}
	return maxSocketPath - len("/") - longest
}

// kubeletsReady is ready when each node's kubelet answers, which it does once
// its Node is registered and its pods are known.
func kubeletsReady(dir string, list []fakekubelet.Node) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, node := range list {
			if err := checkKubelet(ctx, podResourcesSocket(dir, node.Name)); err != nil {
				return fmt.Errorf("the kubelet of %s: %w", node.Name, err)
			}
		}
		return nil
	}
}

func checkKubelet(ctx context.Context, socket string) error {
	// Dialled by ourselves: a path may have characters that a URL may not.
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	connection, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = podresourcesv1.NewPodResourcesListerClient(connection).List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	return err
}
