// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"sluice.dev/test/lab/cluster/fakekubelet/devices"
)

const serverStopTimeout = time.Second

// podResources serves the kubelet's PodResources v1. deviceHolders returns the node's pods
// that have not ended, by namespace and name, and the assigned devices.
type podResources struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	deviceHolders func() ([]*corev1.Pod, devices.State)
}

// serve serves the listener until ctx ends, and closes it.
func (p *podResources) serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, p)
	stop := context.AfterFunc(ctx, func() {
		abort := time.AfterFunc(serverStopTimeout, server.Stop)
		defer abort.Stop()
		server.GracefulStop()
	})
	defer stop()
	if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve PodResources: %w", err)
	}
	return nil
}

// List returns the devices of the containers of each pod, and also pods without devices.
func (p *podResources) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	pods, s := p.deviceHolders()
	response := &podresourcesv1.ListPodResourcesResponse{}
	for _, pod := range pods {
		response.PodResources = append(response.PodResources, podResourcesOf(pod, s))
	}
	return response, nil
}

// Get returns the devices of the containers of one pod.
func (p *podResources) Get(
	_ context.Context, request *podresourcesv1.GetPodResourcesRequest,
) (*podresourcesv1.GetPodResourcesResponse, error) {
	pods, s := p.deviceHolders()
	for _, pod := range pods {
		if pod.Namespace == request.PodNamespace && pod.Name == request.PodName {
			return &podresourcesv1.GetPodResourcesResponse{PodResources: podResourcesOf(pod, s)}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod %s in namespace %s not found", request.PodName, request.PodNamespace)
}

// GetAllocatableResources returns all devices of the node, assigned or not.
func (p *podResources) GetAllocatableResources(
	context.Context, *podresourcesv1.AllocatableResourcesRequest,
) (*podresourcesv1.AllocatableResourcesResponse, error) {
	_, s := p.deviceHolders()
	response := &podresourcesv1.AllocatableResourcesResponse{}
	for _, device := range s.Inventory() {
		response.Devices = append(response.Devices, containerDevice(device.Resource, device.ID))
	}
	return response, nil
}

// podResourcesOf omits init containers that are not sidecars, as a kubelet does.
func podResourcesOf(pod *corev1.Pod, s devices.State) *podresourcesv1.PodResources {
	held := map[string]map[string][]string{}
	holder, _ := s.Pod(string(pod.UID))
	for _, grant := range holder.Grants {
		held[grant.Container] = grant.Devices
	}
	resources := &podresourcesv1.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	add := func(container corev1.Container) {
		entry := &podresourcesv1.ContainerResources{Name: container.Name}
		for _, resource := range slices.Sorted(maps.Keys(held[container.Name])) {
			for _, id := range held[container.Name][resource] {
				entry.Devices = append(entry.Devices, containerDevice(resource, id))
			}
		}
		resources.Containers = append(resources.Containers, entry)
	}
	for _, container := range pod.Spec.InitContainers {
		if isSidecar(container) {
			add(container)
		}
	}
	for _, container := range pod.Spec.Containers {
		add(container)
	}
	return resources
}

// containerDevice returns a message for one device; a kubelet sends one message per device.
func containerDevice(resource, id string) *podresourcesv1.ContainerDevices {
	return &podresourcesv1.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}}
}

// maxSocketPath is the maximum length of a Unix socket's address (108 bytes on Linux),
// without the terminating zero.
const maxSocketPath = 107

// socketPath returns the path of a node's PodResources socket. The error contains by how much
// Dir is too long.
func socketPath(dir, node string) (string, error) {
	path := filepath.Join(nodeDir(dir, node), "pod-resources", "kubelet.sock")
	if over := len(path) - maxSocketPath; over > 0 {
		return "", fmt.Errorf("dir %q: is %d bytes too long: the socket's path %s may have %d; choose a shorter one", dir, over,
			path, maxSocketPath)
	}
	return path, nil
}

func nodeDir(dir, node string) string { return filepath.Join(dir, "nodes", node) }

// listen opens a socket that only this user can connect to. It replaces the socket of an
// earlier process; the caller holds the node's lock, so no other process serves it.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open socket %s: remove the old one: %w", path, err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("open socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("open socket %s: %w", path, err)
	}
	return listener, nil
}
