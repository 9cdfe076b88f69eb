// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package occupancy

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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

type kubelet struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
}

func (kubelet) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	return &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{has("nb", mig1, small)}}, nil
}

func (kubelet) GetAllocatableResources(context.Context, *podresourcesv1.AllocatableResourcesRequest) (*podresourcesv1.AllocatableResourcesResponse, error) {
	return &podresourcesv1.AllocatableResourcesResponse{Devices: []*podresourcesv1.ContainerDevices{{ResourceName: mig1, DeviceIds: []string{small, other}}}}, nil
}

// served starts a kubelet, and returns what stops it.
func served(t *testing.T, socket string) func() {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, kubelet{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

// client of an API server that answers with pods, or not at all.
func apiServer(t *testing.T, fails error) client.Reader {
	t.Helper()
	bound := pod("nb", asking(mig1, 1))
	bound.Spec.NodeName = "dgx-01"
	elsewhere := pod("elsewhere", asking(mig1, 1))
	elsewhere.Spec.NodeName = "dgx-02"
	c := fake.NewClientBuilder().WithObjects(&bound, &elsewhere).
		WithIndex(&corev1.Pod{}, FieldNodeName, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
	return reader{Reader: c, fails: fails}
}

type reader struct {
	client.Reader
	fails error
}

func (r reader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if r.fails != nil {
		return r.fails
	}
	return r.Reader.List(ctx, list, options...)
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
	r := &Reader{Node: "dgx-01", Kubelet: asked, Pods: apiServer(t, nil), Library: board{pci: a100}}

	if _, err := r.InUse(t.Context(), gpu); err == nil {
		t.Error("no kubelet, and no error")
	}
	stop := served(t, socket)
	for range 2 {
		// It comes, goes and comes again.
		holders, err := r.InUse(t.Context(), gpu)
		for err != nil && t.Context().Err() == nil {
			holders, err = r.InUse(t.Context(), gpu) // it waits between its attempts
		}
		if got := holders[small].String(); got != "pod h2/nb" || len(holders) != 1 {
			t.Errorf("%v", holders)
		}
		stop()
		if _, err := r.InUse(t.Context(), gpu); err == nil {
			t.Error("the kubelet is gone, and no error")
		}
		stop = served(t, socket)
	}

	r.Pods = apiServer(t, errors.New("no API server"))
	if _, err := r.InUse(t.Context(), gpu); err == nil {
		t.Error("no API server, and no error")
	}
}
