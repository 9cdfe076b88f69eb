// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"fmt"
	"maps"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/cluster/fakekubelet/devices"
	"sluice.dev/test/cluster/fakekubelet/plugin"
	"sluice.dev/test/cluster/kwok"
)

// nodeObject returns the Node as a kubelet registers it, with the labels that
// GPU feature discovery would add of the GPUs that it saw. The conditions are kwok's
// to write.
func (n Node) nodeObject(number int, kubernetesVersion, bootID string, s devices.State, seen []plugin.GPU) *corev1.Node {
	identity := uuid.NewSHA1(uuid.NameSpaceDNS, []byte(n.Name+".sim.sluice.dev")).String()
	labels := map[string]string{
		corev1.LabelHostname:   n.Name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
		v1alpha1.LabelNodePool: n.Pool,
	}
	maps.Copy(labels, plugin.Labels(n.Machine.Model, seen))
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        n.Name,
			Labels:      labels,
			Annotations: map[string]string{kwok.NodeAnnotation: kwok.NodeAnnotationValue},
		},
		Status: corev1.NodeStatus{
			Capacity:    n.Machine.Capacity(s),
			Allocatable: n.Machine.Allocatable(s),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: nodeAddress(number)},
				{Type: corev1.NodeHostName, Address: n.Name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID:               strings.ReplaceAll(identity, "-", ""),
				SystemUUID:              identity,
				BootID:                  bootID,
				KernelVersion:           "5.15.0-1063-nvidia",
				OSImage:                 "DGX OS 6 (simulated)",
				ContainerRuntimeVersion: "kwok://simulated",
				KubeletVersion:          kubernetesVersion,
				OperatingSystem:         "linux",
				Architecture:            "amd64",
			},
		},
	}
}

// nodeAddress is from the half of the benchmarks' block (RFC 2544) that kwok does
// not give to pods. The first node is number 0.
func nodeAddress(number int) string {
	number++
	return fmt.Sprintf("198.18.%d.%d", number/256%256, number%256)
}

// amendments are the resources that must change on a Node, with their new
// values; empty where nothing must.
type amendments struct {
	Capacity    map[corev1.ResourceName]string `json:"capacity,omitempty"`
	Allocatable map[corev1.ResourceName]string `json:"allocatable,omitempty"`
}

func (a amendments) none() bool { return len(a.Capacity) == 0 && len(a.Allocatable) == 0 }

// amend compares a Node with what the kubelet reports: its capacity, and what of it
// can be given. Its own resources are put
// right, devices that it no longer has are set to zero, and extended resources
// that others keep there are left alone; except on a machine that has just
// booted, whose others' resources are zeroed until they are written again.
func (n Node) amend(current *corev1.Node, capacity, s devices.State, booted bool) amendments {
	return amendments{
		Capacity:    changes(current.Status.Capacity, n.Machine.Capacity(capacity), booted),
		Allocatable: changes(current.Status.Allocatable, n.Machine.Allocatable(s), booted),
	}
}

// relabelled are the labels of GPU feature discovery that must change on a Node: with
// their new values, or nil where they must go.
func relabelled(current, own map[string]string) map[string]any {
	changed := map[string]any{}
	for key, want := range own {
		if current[key] != want {
			changed[key] = want
		}
	}
	for key := range current {
		if _, ours := own[key]; !ours && plugin.IsInstanceLabel(key) {
			changed[key] = nil
		}
	}
	return changed
}

func changes(current, own corev1.ResourceList, booted bool) map[corev1.ResourceName]string {
	changed := map[corev1.ResourceName]string{}
	for name, want := range own {
		if have, ok := current[name]; !ok || have.Cmp(want) != 0 {
			changed[name] = want.String()
		}
	}
	for name, have := range current {
		_, ours := own[name]
		gone := plugin.IsResource(string(name)) || booted && isExtended(name)
		if !ours && gone && !have.IsZero() {
			changed[name] = "0"
		}
	}
	return changed
}
