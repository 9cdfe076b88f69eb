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

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/kwok"
	"sluice.dev/test/cluster/process"
)

// removeStaleNodes removes the simulated Nodes of an earlier run that are not in
// list, and all node Leases. The folder's lock ensures that no other process
// simulates them. kwok would wait until a Lease of its predecessor expires.
func removeStaleNodes(ctx context.Context, c client.Client, list []fakekubelet.Node) error {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		if node := &nodes.Items[i]; isStaleNode(node, list) {
			if err := c.Delete(ctx, node); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("remove node %s: %w", node.Name, err)
			}
		}
	}
	if err := c.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(corev1.NamespaceNodeLease)); err != nil {
		return fmt.Errorf("remove node leases: %w", err)
	}
	return nil
}

// isStaleNode reports whether a Node is simulated and not in list.
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

// checkNodeReady fails if a node is not ready. The condition may be from an earlier
// run, but removeStaleNodes has removed the Lease of that run.
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

// checkComponentsRunning fails for each component that does not run.
func checkComponentsRunning(list []process.Status) error {
	var errs []error
	for _, s := range list {
		if s.State != process.Running {
			errs = append(errs, fmt.Errorf("%s is in %s (%s); its log: %s", s.Name, s.State, s.LastExit, shellQuote(s.LogPath)))
		}
	}
	return errors.Join(errs...)
}

// waitForGPUModels waits until the agents have reported the MIG profiles of the
// nodes' pools. Until then admission denies pods that request a slice.
func waitForGPUModels(ctx context.Context, c client.Client, list []fakekubelet.Node) error {
	return waitFor(ctx, "the GPU agents to report", func(ctx context.Context) (bool, error) {
		var pools v1alpha1.NodePoolList
		if err := c.List(ctx, &pools); err != nil {
			return false, err
		}
		for i := range pools.Items {
			pool := &pools.Items[i]
			used := slices.ContainsFunc(list, func(n fakekubelet.Node) bool { return n.Pool == pool.Name })
			if used && !gpuModelsKnown(pool) {
				return false, fmt.Errorf("the MIG profiles of node pool %s are unknown", pool.Name)
			}
		}
		return true, nil
	})
}

// gpuModelsKnown reports whether the MIG profiles of all GPUs in a pool are known.
func gpuModelsKnown(pool *v1alpha1.NodePool) bool {
	if pool.Spec.Sharing != v1alpha1.SharingMIG {
		return true
	}
	known := int32(0)
	for _, model := range pool.Status.Products {
		if len(model.MIGProfiles) > 0 {
			known += model.GPUs
		}
	}
	return known >= pool.Status.GPUs
}

// maxSocketPath limits the path of a Unix socket, in bytes.
const maxSocketPath = 107

// podResourcesSocket returns the socket on which a node's fake kubelet serves
// PodResources.
func podResourcesSocket(dir, node string) string {
	return filepath.Join(dir, "nodes", node, "pod-resources", "kubelet.sock")
}

// maxDirLength returns the longest folder, in bytes, of a cluster with these nodes.
func maxDirLength(list []fakekubelet.Node) int {
	longest := 0
	for _, node := range list {
		longest = max(longest, len(podResourcesSocket("", node.Name)))
	}
	return maxSocketPath - len("/") - longest
}

// kubeletsReady returns a check that each fake kubelet answers, which it does once
// its Node is registered and its pods are listed.
func kubeletsReady(dir string, list []fakekubelet.Node) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, node := range list {
			if err := checkKubelet(ctx, podResourcesSocket(dir, node.Name)); err != nil {
				return fmt.Errorf("kubelet of %s: %w", node.Name, err)
			}
		}
		return nil
	}
}

func checkKubelet(ctx context.Context, socket string) error {
	// A URL could not hold every path.
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
