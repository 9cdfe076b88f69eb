// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
	"sluice.dev/test/lab/cluster/kwok"
)

// register creates or updates the Node. It waits for an unavailable API server; only a
// permanent rejection is an error.
func (k *kubelet) register(ctx context.Context) error {
	retry := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8, Cap: 7 * time.Second}
	for {
		err := k.tryRegister(ctx)
		if err == nil || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return err
		}
		pause := retry.Step()
		k.log.Warn("Failed to register node, retrying", "after", pause, "error", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

func (k *kubelet) tryRegister(ctx context.Context) error {
	version, err := k.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("get the API server's version: %w", err)
	}
	bootID, err := k.proc.BootID()
	if err != nil {
		return fmt.Errorf("read the boot ID: %w", err)
	}
	desired := k.node.nodeObject(k.number, version.GitVersion, bootID, k.state, k.discovered)
	if k.streams != nil {
		desired.Status.DaemonEndpoints.KubeletEndpoint.Port = KubeletPort
	}
	nodes := k.client.CoreV1().Nodes()
	_, err = nodes.Create(ctx, desired, metav1.CreateOptions{})
	if err == nil || !apierrors.IsAlreadyExists(err) {
		return err
	}
	meta := map[string]any{"metadata": map[string]any{"labels": desired.Labels, "annotations": desired.Annotations}}
	current, err := k.patchNode(ctx, meta)
	if err != nil {
		return err
	}
	status := map[string]any{
		"nodeInfo": desired.Status.NodeInfo, "addresses": desired.Status.Addresses, "daemonEndpoints": desired.Status.DaemonEndpoints,
	}
	if _, err := k.patchNode(ctx, map[string]any{"status": status}, "status"); err != nil {
		return err
	}
	return k.amendNode(ctx, current)
}

// amendNode updates the Node's resources to match the devices.
func (k *kubelet) amendNode(ctx context.Context, current *corev1.Node) error {
	amendments := k.node.computeAmendments(current, k.capacity(), k.state, k.booted)
	if amendments.empty() {
		return nil
	}
	k.log.Info("Updating node resources", "capacity", amendments.Capacity, "allocatable", amendments.Allocatable)
	_, err := k.patchNode(ctx, map[string]any{"status": amendments}, "status")
	return err
}

// labelNode updates the labels of GPU feature discovery.
func (k *kubelet) labelNode(ctx context.Context, current *corev1.Node) error {
	labels := changedLabels(current.Labels, devices.Labels(k.node.Machine.Model, k.discovered))
	if len(labels) == 0 {
		return nil
	}
	_, err := k.patchNode(ctx, map[string]any{"metadata": map[string]any{"labels": labels}})
	return err
}

func (k *kubelet) patchNode(ctx context.Context, patch any, subresources ...string) (*corev1.Node, error) {
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch of node %s: %w", k.node.Name, err)
	}
	return k.client.CoreV1().Nodes().Patch(ctx, k.node.Name, types.StrategicMergePatchType, raw, metav1.PatchOptions{}, subresources...)
}

// nodeObject returns the Node as a kubelet registers it, with the labels of GPU feature
// discovery for these GPUs. kwok writes the conditions.
func (n Node) nodeObject(number int, kubernetesVersion, bootID string, s devices.State, gpus []devices.GPU) *corev1.Node {
	identity := uuid.NewSHA1(uuid.NameSpaceDNS, []byte(n.Name+".sim.sluice.dev")).String()
	labels := map[string]string{
		corev1.LabelHostname:   n.Name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
		v1alpha1.LabelNodePool: n.Pool,
	}
	maps.Copy(labels, devices.Labels(n.Machine.Model, gpus))
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

// nodeAddress returns an address in the half of the benchmarks' block (RFC 2544) that kwok
// does not use for pods. The first node has number 0.
func nodeAddress(number int) string {
	number++
	return fmt.Sprintf("198.18.%d.%d", number/256%256, number%256)
}

// nodeAmendments holds the resources of a Node that must change, with their new values.
type nodeAmendments struct {
	Capacity    map[corev1.ResourceName]string `json:"capacity,omitempty"`
	Allocatable map[corev1.ResourceName]string `json:"allocatable,omitempty"`
}

func (a nodeAmendments) empty() bool { return len(a.Capacity) == 0 && len(a.Allocatable) == 0 }

// computeAmendments compares a Node with the capacity and the allocatable devices that the
// kubelet reports. It corrects the machine's own resources, sets devices that no longer
// exist to zero, and keeps the extended resources of other components. Just after a boot it
// sets those to zero as well, until the other components write them again.
func (n Node) computeAmendments(current *corev1.Node, capacity, s devices.State, booted bool) nodeAmendments {
	return nodeAmendments{
		Capacity:    changedResources(current.Status.Capacity, n.Machine.Capacity(capacity), booted),
		Allocatable: changedResources(current.Status.Allocatable, n.Machine.Allocatable(s), booted),
	}
}

// changedLabels returns the labels of GPU feature discovery that must change on a Node,
// with their new values, or nil for labels to remove.
func changedLabels(current, own map[string]string) map[string]any {
	changed := map[string]any{}
	for key, desired := range own {
		if current[key] != desired {
			changed[key] = desired
		}
	}
	for key := range current {
		if _, ours := own[key]; !ours && devices.IsInstanceLabel(key) {
			changed[key] = nil
		}
	}
	return changed
}

func changedResources(current, own corev1.ResourceList, booted bool) map[corev1.ResourceName]string {
	changed := map[corev1.ResourceName]string{}
	for name, desired := range own {
		if existing, ok := current[name]; !ok || existing.Cmp(desired) != 0 {
			changed[name] = desired.String()
		}
	}
	for name, existing := range current {
		_, ours := own[name]
		gone := devices.IsResource(string(name)) || booted && isExtended(name)
		if !ours && gone && !existing.IsZero() {
			changed[name] = "0"
		}
	}
	return changed
}
