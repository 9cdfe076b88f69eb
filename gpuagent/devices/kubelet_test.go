// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

type fakeKubelet struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
}

func (fakeKubelet) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	return &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{podResources("nb", resourceMIG1g,
		migDeviceSmall)}}, nil
}

func (fakeKubelet) GetAllocatableResources(context.Context,
	*podresourcesv1.AllocatableResourcesRequest,
) (*podresourcesv1.AllocatableResourcesResponse, error) {
	return &podresourcesv1.AllocatableResourcesResponse{Devices: []*podresourcesv1.ContainerDevices{{
		ResourceName: resourceMIG1g,
		DeviceIds:    []string{migDeviceSmall, migDeviceOther},
	}}}, nil
}

// serveKubelet starts a kubelet and returns a function that stops it.
func serveKubelet(t *testing.T, socket string) func() {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, fakeKubelet{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

// listPods returns a lister of pods.
func listPods(pods ...corev1.Pod) PodLister {
	return func(context.Context) ([]corev1.Pod, error) { return pods, nil }
}

func TestInUseFailsClosed(t *testing.T) {
	dir, err := os.MkdirTemp("", "occupancy") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "kubelet.sock")
	asked, err := NewKubelet(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = asked.Close() })
	r := &Reader{Node: "dgx-01", Kubelet: asked, ListBound: listPods(newPod("nb", withLimit(resourceMIG1g, 1))), Library: fakeLibrary{pci: pciA100}}

	if _, err := r.InUse(t.Context(), gpuUUID1); err == nil {
		t.Error("no kubelet, and no error")
	}
	stop := serveKubelet(t, socket)
	for range 2 {
		// The kubelet starts, stops and starts again.
		holders, err := r.InUse(t.Context(), gpuUUID1)
		for err != nil && t.Context().Err() == nil {
			holders, err = r.InUse(t.Context(), gpuUUID1) // InUse waits between its attempts
		}
		if got := holders[migDeviceSmall].String(); got != "pod h2/nb" || len(holders) != 1 {
			t.Errorf("%v", holders)
		}
		stop()
		if _, err := r.InUse(t.Context(), gpuUUID1); err == nil {
			t.Error("no error without a kubelet")
		}
		stop = serveKubelet(t, socket)
	}

	r.ListBound = func(context.Context) ([]corev1.Pod, error) { return nil, errors.New("no API server") }
	if _, err := r.InUse(t.Context(), gpuUUID1); err == nil {
		t.Error("no API server, and no error")
	}
}
