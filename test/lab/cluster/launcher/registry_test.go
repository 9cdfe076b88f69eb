// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A pod whose files cannot be prepared is tried every second: it keeps its ports.
func TestPortsAreReservedOnce(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 8080}, {ContainerPort: 9443}}}}}}
	pod.Name = "a"
	id := newRegistry().reserve(pod)
	defer id.release()
	if err := id.reservePorts(pod); err != nil {
		t.Fatal(err)
	}
	first := maps.Clone(id.ports)
	if err := id.reservePorts(pod); err != nil {
		t.Fatal(err)
	}
	if len(first) != 2 || !maps.Equal(first, id.ports) {
		t.Errorf("the ports are %v, and were %v", id.ports, first)
	}
}
