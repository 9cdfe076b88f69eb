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
	"sigs.k8s.io/yaml"

	"sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/up/kueue"
	agentconfig "sluice.dev/gpuagent/agent"
	lifecycleconfig "sluice.dev/lifecycle/config"
	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/kwok"
	"sluice.dev/test/cluster/process"
	webhookconfig "sluice.dev/webhook"
)

func kwokCommand(s componentContext) (process.Spec, error) {
	command, err := kwok.Write(s.dir, kwok.Options{Kubeconfig: s.kubeconfig})
	return process.Spec{Path: s.programs["kwok"], Args: command.Args, Env: command.Env}, err
}

func fakekubeletCommand(s componentContext) (process.Spec, error) {
	self, err := os.Executable()
	if err != nil {
		return process.Spec{}, err
	}
	path := filepath.Join(s.dir, "config.yaml")
	err = fakekubelet.WriteConfig(path, fakekubelet.Config{
		Kubeconfig: s.kubeconfig,
		Dir:        s.cluster.Dir(),
		Nodes:      s.nodes,
	})
	return process.Spec{
		Path:  self,
		Args:  append(slices.Clone(simulateKubeletArgs), "--config", path),
		Ready: kubeletsReady(s.cluster.Dir(), s.nodes),
	}, err
}

func lifecycleCommand(s componentContext) (process.Spec, error) {
	return productSpec(s, "lifecycle", lifecycleconfig.Config{
		TypeMeta: metav1.TypeMeta{APIVersion: config.APIVersion, Kind: lifecycleconfig.Kind},
		Common:   s.commonConfig(),
		// The folder's lock leaves room for one, and a killed predecessor's Lease
		// would only make it wait.
		LeaderElection: lifecycleconfig.LeaderElection{Disabled: true},
		// Here nobody depends on GPU pods outside of projects.
		GPUPodsOutside: lifecycleconfig.Deny,
		Identities:     s.identities(),
		Mail:           s.mailConfig(),
	})
}

// identities are who may do in projects what others may not, beside those that
// every cluster has.
func (s componentContext) identities() lifecycleconfig.Identities {
	if s.scheduler != schedulerKueue {
		return lifecycleconfig.Identities{}
	}
	return lifecycleconfig.Identities{Queues: []string{kueue.User}}
}

func webhookCommand(s componentContext) (process.Spec, error) {
	certificates := filepath.Join(s.dir, "certificates")
	if err := s.cluster.IssueServing("webhook.sluice-system.svc", certificates); err != nil {
		return process.Spec{}, err
	}
	return productSpec(s, "webhook", webhookconfig.Config{
		TypeMeta:     metav1.TypeMeta{APIVersion: config.APIVersion, Kind: webhookconfig.ConfigKind},
		Common:       s.commonConfig(),
		Listen:       s.loopbackAddress(webhookPort),
		Certificates: certificates,
	})
}

// The meaning of a product component's ports.
const (
	healthPort = iota
	metricsPort
	webhookPort
)

func (s componentContext) commonConfig() config.Common {
	return config.Common{
		Kubeconfig: s.kubeconfig,
		Health:     s.loopbackAddress(healthPort),
		Metrics:    s.loopbackAddress(metricsPort),
		ClockFile:  s.clockFile,
	}
}

// productSpec is one of Sluice's own components with its configuration file.
func productSpec(s componentContext, name string, content any) (process.Spec, error) {
	path, err := siblingProgram(name)
	if err != nil {
		return process.Spec{}, err
	}
	raw, err := yaml.Marshal(content)
	if err != nil {
		return process.Spec{}, fmt.Errorf("its configuration: %w", err)
	}
	file := filepath.Join(s.dir, "config.yaml")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return process.Spec{}, fmt.Errorf("its configuration: %w", err)
	}
	return process.Spec{Path: path, Args: []string{"--config", file}, Ready: cluster.Readyz(s.loopbackAddress(healthPort))}, nil
}

// simulateKubeletArgs are the arguments by which this program plays the nodes, and with
// them the device plugin.
var simulateKubeletArgs = []string{"simulate", "kubelet"}

// agentCommand is a node's agent, with the node's own folder for its host.
func agentCommand(s componentContext) (process.Spec, error) {
	self, err := os.Executable()
	if err != nil {
		return process.Spec{}, err
	}
	host := filepath.Join(s.cluster.Dir(), "nodes", s.node)
	plugin := append([]string{filepath.Base(self)}, simulateKubeletArgs...)
	return productSpec(s, agentProgram, agentconfig.Config{
		TypeMeta:     metav1.TypeMeta{APIVersion: config.APIVersion, Kind: agentconfig.ConfigKind},
		Common:       s.commonConfig(),
		NodeName:     s.node,
		Driver:       agentconfig.Driver{Simulator: filepath.Join(host, "nvml.sock")},
		Proc:         filepath.Join(host, "proc"),
		PodResources: podResourcesSocket(s.cluster.Dir(), s.node),
		StateDir:     filepath.Join(host, agentProgram),
		DevicePlugin: agentconfig.DevicePlugin{Command: strings.Join(plugin, " ")},
	})
}

// waitForGPUModels waits until it is known into what the GPUs can be cut, of the pools that
// these nodes are for: until then nobody could ask for a slice.
func waitForGPUModels(ctx context.Context, c client.Client, list []fakekubelet.Node) error {
	return waitFor(ctx, "the GPUs' agents to report", func(ctx context.Context) (bool, error) {
		var pools v1alpha1.NodePoolList
		if err := c.List(ctx, &pools); err != nil {
			return false, err
		}
		for i := range pools.Items {
			pool := &pools.Items[i]
			ours := slices.ContainsFunc(list, func(n fakekubelet.Node) bool { return n.Pool == pool.Name })
			if ours && !gpuModelsKnown(pool) {
				return false, fmt.Errorf("nobody knows yet into what the GPUs of node pool %s can be cut", pool.Name)
			}
		}
		return true, nil
	})
}

func gpuModelsKnown(pool *v1alpha1.NodePool) bool {
	if pool.Spec.Sharing != v1alpha1.SharingMIG {
		return true
	}
	known := int32(0)
	for _, board := range pool.Status.Products {
		if len(board.MIGProfiles) > 0 {
			known += board.GPUs
		}
	}
	return known >= pool.Status.GPUs
}
