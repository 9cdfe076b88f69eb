// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"sluice.dev/api/v1alpha1"
)

// requestTimeout is how long the kubelet, and the API server, may take to answer.
const requestTimeout = 5 * time.Second

// maxResponseBytes is as large, in bytes, as an answer of the kubelet may be; kubelets
// themselves allow 16 MiB.
const maxResponseBytes = 16 << 20

// Kubelet is what the node's kubelet says about devices.
type Kubelet struct {
	connection *grpc.ClientConn
	client     podresourcesv1.PodResourcesListerClient
}

// NewKubelet asks on a socket. It connects when it is asked, and again after the
// kubelet was started anew.
func NewKubelet(socket string) (*Kubelet, error) {
	// Dialled by ourselves: a path may have characters that a URL may not.
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	connection, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponseBytes)),
		// A kubelet that is started anew is to be found at once, not after a minute.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("kubelet at %s: %w", socket, err)
	}
	return &Kubelet{connection: connection, client: podresourcesv1.NewPodResourcesListerClient(connection)}, nil
}

// Close ends the connection.
func (k *Kubelet) Close() error { return k.connection.Close() }

// ListAssignments is who holds what right now.
func (k *Kubelet) ListAssignments(ctx context.Context) (Assignments, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// What is offered first: a device that is given meanwhile is then seen as given.
	offered, err := k.client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		return Assignments{}, fmt.Errorf("asking the kubelet for its devices: %w", err)
	}
	held, err := k.client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return Assignments{}, fmt.Errorf("asking the kubelet which pod has which device: %w", err)
	}
	return newAssignments(offered, held)
}

// nvidiaDRADriver is NVIDIA's driver for dynamic resource allocation.
const nvidiaDRADriver = "gpu.nvidia.com"

// isGPU tells whether a resource stands for GPUs or slices of them, by its name. There
// are others of NVIDIA's: its network cards have theirs.
func isGPU(name corev1.ResourceName) bool {
	return name == v1alpha1.ResourceNVIDIAGPU || strings.HasPrefix(string(name), string(v1alpha1.ResourceNVIDIAGPU)+".") ||
		strings.HasPrefix(string(name), v1alpha1.ResourceNVIDIAMIGPrefix)
}

// Assignments are the kubelet's devices and who has them.
type Assignments struct {
	// Offered is the resource under which each device is offered to pods.
	Offered map[string]corev1.ResourceName
	// Holders are the pods that have each device, by its UUID. A GPU that is shared has
	// several.
	Holders map[string][]types.NamespacedName
	// Counts is how many devices of each resource each pod has.
	Counts map[types.NamespacedName]map[corev1.ResourceName]int
	// Dynamic are pods of which the kubelet tells what they have by dynamic resource
	// allocation. Kubelets before Kubernetes 1.34 tell it of none.
	Dynamic map[types.NamespacedName]bool
	// Ambiguous are pods that have a device which the kubelet does not name, or of whose
	// name there are two. What they have cannot be told.
	Ambiguous []types.NamespacedName
}

// newAssignments reads the kubelet's answers. It is an error if a pod has a GPU whose name is
// no UUID: nobody knows then which one that is.
func newAssignments(offered *podresourcesv1.AllocatableResourcesResponse, held *podresourcesv1.ListPodResourcesResponse) (Assignments, error) {
	h := Assignments{
		Offered: map[string]corev1.ResourceName{},
		Holders: map[string][]types.NamespacedName{},
		Counts:  map[types.NamespacedName]map[corev1.ResourceName]int{},
		Dynamic: map[types.NamespacedName]bool{},
	}
	for _, devices := range offered.GetDevices() {
		for _, id := range devices.GetDeviceIds() {
			if uuid, ok := deviceUUID(id); ok {
				h.Offered[uuid] = corev1.ResourceName(devices.GetResourceName())
			}
		}
	}
	for _, resources := range held.GetPodResources() {
		pod := types.NamespacedName{Namespace: resources.GetNamespace(), Name: resources.GetName()}
		if _, twice := h.Counts[pod]; twice {
			// Two incarnations, of which one is being ended: which one has what?
			h.Ambiguous = append(h.Ambiguous, pod)
		}
		if h.Counts[pod] == nil {
			h.Counts[pod] = map[corev1.ResourceName]int{}
		}
		for _, container := range resources.GetContainers() {
			if err := h.addContainer(pod, container); err != nil {
				return Assignments{}, err
			}
		}
	}
	// The kubelet lists pods in another order each time, and what is told shall not
	// change by that.
	for _, pods := range h.Holders {
		slices.SortFunc(pods, compareNames)
	}
	slices.SortFunc(h.Ambiguous, compareNames)
	return h, nil
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func (h *Assignments) addContainer(pod types.NamespacedName, container *podresourcesv1.ContainerResources) error {
	for _, devices := range container.GetDevices() {
		for _, id := range devices.GetDeviceIds() {
			uuid, ok := deviceUUID(id)
			if !ok {
				if isGPU(corev1.ResourceName(devices.GetResourceName())) {
					return fmt.Errorf("pod %s has the device %q of %s, which is no UUID: the device plugin has to name devices by UUID",
						pod, id, devices.GetResourceName())
				}
				continue
			}
			h.Counts[pod][corev1.ResourceName(devices.GetResourceName())]++
			h.Holders[uuid] = append(h.Holders[uuid], pod)
		}
	}
	for _, dynamic := range container.GetDynamicResources() {
		h.Dynamic[pod] = true
		for _, claimed := range dynamic.GetClaimResources() {
			if claimed.GetDriverName() == nvidiaDRADriver {
				h.Ambiguous = append(h.Ambiguous, pod)
			}
		}
	}
	return nil
}

// hasResource tells whether the kubelet offers GPUs under a resource, whatever its name.
func (h *Assignments) hasResource(resource corev1.ResourceName) bool {
	for _, name := range h.Offered {
		if name == resource {
			return true
		}
	}
	return false
}

// deviceUUIDPattern is that of a GPU and of a MIG device. Other plugins put more behind it for the
// parts of a GPU (GPU-…-3), by which no device is found.
var deviceUUIDPattern = regexp.MustCompile(`^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// deviceUUID is the device that an identifier of the kubelet's stands for: replicas of a
// shared one have a number behind it.
func deviceUUID(id string) (string, bool) {
	uuid, _, _ := strings.Cut(id, "::")
	return uuid, deviceUUIDPattern.MatchString(uuid)
}
