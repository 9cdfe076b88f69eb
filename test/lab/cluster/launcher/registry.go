// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/test/lab/cluster"
)

// PodCIDR is the range of the pods' addresses: the part of the block reserved for benchmarks
// (RFC 2544) that neither kwok's pods nor the simulated nodes use.
const PodCIDR = "198.18.128.0/17"

// registry has the names, addresses and ports of the running pods.
type registry struct {
	mu    sync.Mutex
	names map[string]bool
	last  netip.Addr
	pods  map[netip.Addr]*identity
}

// identity is what a pod has while it runs.
type identity struct {
	registry *registry
	// name is unique among the pods.
	name string
	// ip is the pod's address, which is never reached.
	ip netip.Addr
	// ports has the port on loopback of each containerPort.
	ports        map[int32]int
	releasePorts func()
}

func newRegistry() *registry {
	return &registry{names: map[string]bool{}, pods: map[netip.Addr]*identity{}, last: netip.MustParsePrefix(PodCIDR).Addr()}
}

// reserve returns a new identity for a pod. The name is the first free one of its
// controller.
func (r *registry) reserve(pod *corev1.Pod) *identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	base := baseName(pod)
	name := base
	for i := 2; r.names[name]; i++ {
		name = base + "-" + strconv.Itoa(i)
	}
	r.names[name] = true
	id := &identity{registry: r, name: name, ip: r.freeAddressLocked()}
	r.pods[id.ip] = id
	return id
}

// freeAddressLocked returns the next free address, so that an address is not used again soon.
func (r *registry) freeAddressLocked() netip.Addr {
	prefix := netip.MustParsePrefix(PodCIDR)
	for {
		r.last = r.last.Next()
		if !prefix.Contains(r.last) {
			r.last = prefix.Addr().Next()
		}
		if r.pods[r.last] == nil {
			return r.last
		}
	}
}

// baseName returns the name of a pod's controller, for a DaemonSet's pod with the node.
func baseName(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil:
		return pod.Name
	case owner.Kind == "ReplicaSet":
		return strings.TrimSuffix(owner.Name, "-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey])
	case owner.Kind == "DaemonSet":
		return owner.Name + "-" + pod.Spec.NodeName
	}
	return owner.Name
}

// reservePorts reserves a port for each containerPort, until release. A repeated call has no
// effect.
func (i *identity) reservePorts(pod *corev1.Pod) error {
	if i.releasePorts != nil {
		return nil
	}
	var declared []int32
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			declared = append(declared, port.ContainerPort)
		}
	}
	free, release, err := cluster.FreePorts(len(declared))
	if err != nil {
		return fmt.Errorf("reserve ports: %w", err)
	}
	i.registry.mu.Lock()
	defer i.registry.mu.Unlock()
	i.releasePorts, i.ports = release, map[int32]int{}
	for n, port := range declared {
		i.ports[port] = free[n]
	}
	return nil
}

func (i *identity) release() {
	i.registry.mu.Lock()
	defer i.registry.mu.Unlock()
	delete(i.registry.names, i.name)
	delete(i.registry.pods, i.ip)
	if i.releasePorts != nil {
		i.releasePorts()
	}
}

// loopbackPort returns the port on loopback for an address and port of a pod.
func (r *registry) loopbackPort(ip string, port int32) (int, bool) {
	address, err := netip.ParseAddr(ip)
	if err != nil {
		return 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.pods[address]
	if id == nil {
		return 0, false
	}
	found, ok := id.ports[port]
	return found, ok
}
