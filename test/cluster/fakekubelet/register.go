// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"sluice.dev/test/cluster/fakekubelet/plugin"
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
	amendments := k.node.amend(current, k.capacity(), k.state, k.booted)
	if amendments.none() {
		return nil
	}
	k.log.Info("writing the node's resources", "capacity", amendments.Capacity, "allocatable", amendments.Allocatable)
	_, err := k.patchNode(ctx, map[string]any{"status": amendments}, "status")
	return err
}

// labelNode brings the labels of GPU feature discovery in line with what was seen.
func (k *kubelet) labelNode(ctx context.Context, current *corev1.Node) error {
	labels := relabelled(current.Labels, plugin.Labels(k.node.Machine.Model, k.seen))
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
