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
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/installation"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/test/lab/cluster"
	"sluice.dev/test/lab/cluster/fakekubelet"
	"sluice.dev/test/lab/cluster/kwok"
	"sluice.dev/test/lab/cluster/launcher"
	"sluice.dev/test/lab/cluster/process"
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

// controlPlaneNode is the node of the pods of webhook and lifecycle. It has no GPUs, and its
// taint keeps all other pods away.
const controlPlaneNode = "control-plane-1"

// createControlPlaneNode registers the control plane's node, which kwok keeps ready.
func createControlPlaneNode(ctx context.Context, in *cluster.Cluster, c client.Client) error {
	server, err := discovery.NewDiscoveryClientForConfig(in.Config())
	if err != nil {
		return fmt.Errorf("create node %s: %w", controlPlaneNode, err)
	}
	version, err := server.ServerVersion()
	if err != nil {
		return fmt.Errorf("create node %s: %w", controlPlaneNode, err)
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	err = c.Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: controlPlaneNode,
			Labels: map[string]string{
				corev1.LabelHostname: controlPlaneNode, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				controlPlaneKey: "",
			},
			Annotations: map[string]string{kwok.NodeAnnotation: kwok.NodeAnnotationValue},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: controlPlaneKey, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: controlPlaneNode}},
			NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: version.GitVersion, OperatingSystem: "linux", Architecture: "amd64"},
			// The scheduler need not wait for kwok.
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
				LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			}},
		},
	})
	if client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("create node %s: %w", controlPlaneNode, err)
	}
	return nil
}

// controlPlaneKey is the label and the taint of nodes of a control plane.
const controlPlaneKey = "node-role.kubernetes.io/control-plane"

// waitForPods waits until all pods of Sluice are ready, and the API server reaches the
// webhook. The pods' own status may be from an earlier run.
func waitForPods(ctx context.Context, c client.Client, s componentContext) error {
	var service corev1.Service
	if err := c.Get(ctx, types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: webhookProgram}, &service); err != nil {
		return fmt.Errorf("get the webhook's Service: %w", err)
	}
	address := net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(service.Spec.Ports[0].Port)))
	return installation.WaitFor(ctx, "Sluice's pods to be ready", func(ctx context.Context) (bool, error) {
		list := s.cluster.Processes().List()
		errs := []error{checkComponentsRunning(list), launcher.CheckService(ctx, s.cluster.ServiceSocket(), address)}
		for _, name := range s.podNames() {
			// After a change of the number of replicas the remaining one may be webhook-2.
			if !slices.ContainsFunc(list, func(status process.Status) bool {
				return status.Name == name || strings.HasPrefix(status.Name, name+"-")
			}) {
				errs = append(errs, fmt.Errorf("%s has not started; the log of the launcher and `kubectl get pods -A` show why", name))
			}
		}
		err := errors.Join(errs...)
		return err == nil, err
	})
}

// isStaleNode reports whether a Node is simulated and not in list.
func isStaleNode(node *corev1.Node, list []fakekubelet.Node) bool {
	return node.Name != controlPlaneNode && node.Annotations[kwok.NodeAnnotation] == kwok.NodeAnnotationValue &&
		!slices.ContainsFunc(list, func(n fakekubelet.Node) bool { return n.Name == node.Name })
}

// waitForNodesAndComponents waits until every node is ready and every component runs.
func waitForNodesAndComponents(ctx context.Context, c client.Client, list []fakekubelet.Node, processes func() []process.Status) error {
	return installation.WaitFor(ctx, "the nodes and the components to be ready", func(ctx context.Context) (bool, error) {
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
			errs = append(errs, fmt.Errorf("%s is in %s (%s); its log: %s", s.Name, s.State, s.LastExit, printer.ShellQuote(s.LogPath)))
		}
	}
	return errors.Join(errs...)
}

// waitForGPUModels waits until the agents have reported the MIG profiles of the
// nodes' pools. Until then admission denies pods that request a slice.
func waitForGPUModels(ctx context.Context, c client.Client, list []fakekubelet.Node) error {
	return installation.WaitFor(ctx, "the GPU agents to report", func(ctx context.Context) (bool, error) {
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
