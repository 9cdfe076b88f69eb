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

// requestTimeout limits a request to the kubelet or the API server.
const requestTimeout = 5 * time.Second

// maxResponseBytes limits a response of the kubelet. Kubelets themselves allow 16 MiB.
const maxResponseBytes = 16 << 20

// Kubelet reads device assignments from the node's kubelet.
type Kubelet struct {
	connection *grpc.ClientConn
	client     podresourcesv1.PodResourcesListerClient
}

// NewKubelet returns a client for the kubelet's socket. It connects on the first request, and again
// after a restart of the kubelet.
func NewKubelet(socket string) (*Kubelet, error) {
	// A custom dialer, since the path may contain characters that a URL may not.
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	connection, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponseBytes)),
		// Find a restarted kubelet at once, not after a minute.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("connect to kubelet at %s: %w", socket, err)
	}
	return &Kubelet{connection: connection, client: podresourcesv1.NewPodResourcesListerClient(connection)}, nil
}

// Close closes the connection.
func (k *Kubelet) Close() error { return k.connection.Close() }

// ListAssignments returns the current assignments.
func (k *Kubelet) ListAssignments(ctx context.Context) (Assignments, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// The offered devices come first: a device assigned in between then counts as assigned.
	offered, err := k.client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		return Assignments{}, fmt.Errorf("list the kubelet's devices: %w", err)
	}
	held, err := k.client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return Assignments{}, fmt.Errorf("list the devices of pods at the kubelet: %w", err)
	}
	return newAssignments(offered, held)
}

// nvidiaDRADriver is NVIDIA's driver for dynamic resource allocation.
const nvidiaDRADriver = "gpu.nvidia.com"

// isGPU reports whether a resource's name stands for GPUs or MIG devices. NVIDIA's network cards
// have other names.
func isGPU(name corev1.ResourceName) bool {
	return name == v1alpha1.ResourceNVIDIAGPU || strings.HasPrefix(string(name), string(v1alpha1.ResourceNVIDIAGPU)+".") ||
		strings.HasPrefix(string(name), v1alpha1.ResourceNVIDIAMIGPrefix)
}

// Assignments are the kubelet's devices and their pods.
type Assignments struct {
	// Offered is the resource under which each device is offered to pods.
	Offered map[string]corev1.ResourceName
	// Holders are the pods of each device by its UUID, several for a shared GPU.
	Holders map[string][]types.NamespacedName
	// Counts is the number of devices of each resource and pod.
	Counts map[types.NamespacedName]map[corev1.ResourceName]int
	// Dynamic are the pods whose dynamically allocated devices the kubelet reports. Kubelets before
	// Kubernetes 1.34 report none.
	Dynamic map[types.NamespacedName]bool
	// Replicated are the resources of MIG devices of which the device plugin offers several replicas.
	Replicated []corev1.ResourceName
	// Replicas is the number of replicas that the device plugin offers of each device that it shares. It is
	// 0 if a pod has a replica and the plugin offers none, as after its restart.
	Replicas map[string]int
	// Ambiguous are the pods whose devices are unknown: the kubelet does not name a device, or it
	// lists two pods of one name.
	Ambiguous []types.NamespacedName
}

// newAssignments converts the kubelet's responses. A pod with a GPU that is not named by UUID is an
// error: the GPU is unknown.
func newAssignments(offered *podresourcesv1.AllocatableResourcesResponse,
	held *podresourcesv1.ListPodResourcesResponse,
) (Assignments, error) {
	h := Assignments{
		Offered: map[string]corev1.ResourceName{},
		Holders: map[string][]types.NamespacedName{},
		Counts:  map[types.NamespacedName]map[corev1.ResourceName]int{},
		Dynamic: map[types.NamespacedName]bool{},

		Replicas: map[string]int{},
	}
	for _, devices := range offered.GetDevices() {
		for _, id := range devices.GetDeviceIds() {
			uuid, ok := deviceUUID(id)
			if !ok {
				continue
			}
			name := corev1.ResourceName(devices.GetResourceName())
			h.Offered[uuid] = name
			if uuid != id {
				h.Replicas[uuid]++
			}
			_, isMIG := v1alpha1.MIGProfileOf(name)
			if isMIG && uuid != id && !slices.Contains(h.Replicated, name) {
				h.Replicated = append(h.Replicated, name)
			}
		}
	}
	for _, resources := range held.GetPodResources() {
		pod := types.NamespacedName{Namespace: resources.GetNamespace(), Name: resources.GetName()}
		if _, twice := h.Counts[pod]; twice {
			// One of two incarnations is terminating, and the kubelet does not say which one holds
			// what.
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
	// The kubelet's order of pods varies, and reports must not change with it.
	for _, pods := range h.Holders {
		slices.SortFunc(pods, compareNames)
	}
	slices.SortFunc(h.Ambiguous, compareNames)
	slices.Sort(h.Replicated)
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
					return fmt.Errorf("pod %s has the device %q of %s, which is not a UUID: configure the device plugin to name devices by UUID",
						pod, id, devices.GetResourceName())
				}
				continue
			}
			h.Counts[pod][corev1.ResourceName(devices.GetResourceName())]++
			h.Holders[uuid] = append(h.Holders[uuid], pod)
			if uuid != id {
				h.Replicas[uuid] += 0 // The device is shared, even if no replica is offered now.
			}
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

// hasResource reports whether the kubelet offers GPUs under a resource of any name.
func (h *Assignments) hasResource(resource corev1.ResourceName) bool {
	for _, name := range h.Offered {
		if name == resource {
			return true
		}
	}
	return false
}

// deviceUUIDPattern matches the UUID of a GPU or a MIG device. Other plugins append the parts of a
// GPU (GPU-…-3), which no device has.
var deviceUUIDPattern = regexp.MustCompile(`^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// deviceUUID returns the UUID in a kubelet's device identifier. Replicas of a shared device have a
// number behind it.
func deviceUUID(id string) (string, bool) {
	uuid, _, _ := strings.Cut(id, "::")
	return uuid, deviceUUIDPattern.MatchString(uuid)
}
