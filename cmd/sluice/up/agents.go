// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	agentconfig "sluice.dev/gpuagent/config"
	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/process"
)

// simulateKubelet are the arguments by which this program plays the nodes, and with
// them the device plugin.
var simulateKubelet = []string{"simulate", "kubelet"}

// agentCommand is a node's agent, with the node's own folder for its host.
func agentCommand(s setting) (process.Spec, error) {
	self, err := os.Executable()
	if err != nil {
		return process.Spec{}, err
	}
	host := filepath.Join(s.cluster.Dir(), "nodes", s.node)
	plugin := append([]string{filepath.Base(self)}, simulateKubelet...)
	return product(s, agent, agentconfig.Config{
		TypeMeta:     metav1.TypeMeta{APIVersion: config.APIVersion, Kind: agentconfig.Kind},
		Common:       s.common(),
		NodeName:     s.node,
		Driver:       agentconfig.Driver{Simulator: filepath.Join(host, "nvml.sock")},
		Proc:         filepath.Join(host, "proc"),
		PodResources: socketOf(s.cluster.Dir(), s.node),
		StateDir:     filepath.Join(host, agent),
		DevicePlugin: agentconfig.DevicePlugin{Command: strings.Join(plugin, " ")},
	})
}

// awaitBoards waits until it is known into what the GPUs can be cut, of the pools that
// these nodes are for: until then nobody could ask for a slice.
func awaitBoards(ctx context.Context, c client.Client, list []fakekubelet.Node) error {
	return await(ctx, "the GPUs' agents to report", func(ctx context.Context) (bool, error) {
		var pools v1alpha1.NodePoolList
		if err := c.List(ctx, &pools); err != nil {
			return false, err
		}
		for i := range pools.Items {
			pool := &pools.Items[i]
			ours := slices.ContainsFunc(list, func(n fakekubelet.Node) bool { return n.Pool == pool.Name })
			if ours && !boardsKnown(pool) {
				return false, fmt.Errorf("nobody knows yet into what the GPUs of node pool %s can be cut", pool.Name)
			}
		}
		return true, nil
	})
}

func boardsKnown(pool *v1alpha1.NodePool) bool {
	if pool.Spec.Sharing != v1alpha1.SharingMIG {
		return true
	}
	known := int32(0)
	for _, board := range pool.Status.Boards {
		if len(board.MIGProfiles) > 0 {
			known += board.GPUs
		}
	}
	return known >= pool.Status.GPUs
}
