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
	"sluice.dev/test/cluster/fakekubelet/deviceplugin"
	"sluice.dev/test/cluster/fakekubelet/devices"
	"sluice.dev/test/cluster/kwok"
)

// register makes the Node, or puts right the one that is there. The API server
// may be away for as long as it likes; only what it will never accept is an
// error.
func (k *kubelet) register(ctx context.Context) error {
	retry := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8, Cap: 7 * time.Second}
	for {
		err := k.tryRegister(ctx)
		if err == nil || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return err
		}
		pause := retry.Step()
		k.log.Warn("cannot register the node; trying again", "after", pause, "error", err)
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
		return fmt.Errorf("ask for the API server's version: %w", err)
	}
	bootID, err := k.proc.BootID()
	if err != nil {
		return fmt.Errorf("the boot's identity: %w", err)
	}
	want := k.node.nodeObject(k.number, version.GitVersion, bootID, k.state, k.seen)
	nodes := k.client.CoreV1().Nodes()
	_, err = nodes.Create(ctx, want, metav1.CreateOptions{})
	if err == nil || !apierrors.IsAlreadyExists(err) {
		return err
	}
	meta := map[string]any{"metadata": map[string]any{"labels": want.Labels, "annotations": want.Annotations}}
	current, err := k.patchNode(ctx, meta)
	if err != nil {
		return err
	}
	status := map[string]any{"nodeInfo": want.Status.NodeInfo, "addresses": want.Status.Addresses}
	if _, err := k.patchNode(ctx, map[string]any{"status": status}, "status"); err != nil {
		return err
	}
	return k.amendNode(ctx, current)
}

// amendNode brings the Node's resources in line with the devices.
func (k *kubelet) amendNode(ctx context.Context, current *corev1.Node) error {
	amendments := k.node.computeAmendments(current, k.capacity(), k.state, k.booted)
	if amendments.empty() {
		return nil
	}
	k.log.Info("writing the node's resources", "capacity", amendments.Capacity, "allocatable", amendments.Allocatable)
	_, err := k.patchNode(ctx, map[string]any{"status": amendments}, "status")
	return err
}

// labelNode brings the labels of GPU feature discovery in line with what was seen.
func (k *kubelet) labelNode(ctx context.Context, current *corev1.Node) error {
	labels := changedLabels(current.Labels, deviceplugin.Labels(k.node.Machine.Model, k.seen))
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

// nodeObject returns the Node as a kubelet registers it, with the labels that
// GPU feature discovery would add of the GPUs that it saw. The conditions are kwok's
// to write.
func (n Node) nodeObject(number int, kubernetesVersion, bootID string, s devices.State, seen []deviceplugin.GPU) *corev1.Node {
	identity := uuid.NewSHA1(uuid.NameSpaceDNS, []byte(n.Name+".sim.sluice.dev")).String()
	labels := map[string]string{
		corev1.LabelHostname:   n.Name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
		v1alpha1.LabelNodePool: n.Pool,
	}
	maps.Copy(labels, deviceplugin.Labels(n.Machine.Model, seen))
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

// nodeAmendments are the resources that must change on a Node, with their new
// values; empty where nothing must.
type nodeAmendments struct {
	Capacity    map[corev1.ResourceName]string `json:"capacity,omitempty"`
	Allocatable map[corev1.ResourceName]string `json:"allocatable,omitempty"`
}

func (a nodeAmendments) empty() bool { return len(a.Capacity) == 0 && len(a.Allocatable) == 0 }

// computeAmendments compares a Node with what the kubelet reports: its capacity, and what of it
// can be given. Its own resources are put
// right, devices that it no longer has are set to zero, and extended resources
// that others keep there are left alone; except on a machine that has just
// booted, whose others' resources are zeroed until they are written again.
func (n Node) computeAmendments(current *corev1.Node, capacity, s devices.State, booted bool) nodeAmendments {
	return nodeAmendments{
		Capacity:    changedResources(current.Status.Capacity, n.Machine.Capacity(capacity), booted),
		Allocatable: changedResources(current.Status.Allocatable, n.Machine.Allocatable(s), booted),
	}
}

// changedLabels are the labels of GPU feature discovery that must change on a Node: with
// their new values, or nil where they must go.
func changedLabels(current, own map[string]string) map[string]any {
	changed := map[string]any{}
	for key, want := range own {
		if current[key] != want {
			changed[key] = want
		}
	}
	for key := range current {
		if _, ours := own[key]; !ours && deviceplugin.IsInstanceLabel(key) {
			changed[key] = nil
		}
	}
	return changed
}

func changedResources(current, own corev1.ResourceList, booted bool) map[corev1.ResourceName]string {
	changed := map[corev1.ResourceName]string{}
	for name, want := range own {
		if have, ok := current[name]; !ok || have.Cmp(want) != 0 {
			changed[name] = want.String()
		}
	}
	for name, have := range current {
		_, ours := own[name]
		gone := deviceplugin.IsResource(string(name)) || booted && isExtended(name)
		if !ours && gone && !have.IsZero() {
			changed[name] = "0"
		}
	}
	return changed
}
