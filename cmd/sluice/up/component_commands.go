// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/config"
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

// simulateKubeletArgs are the arguments with which this program runs the simulated
// kubelets and device plugins.
var simulateKubeletArgs = []string{"simulate", "kubelet"}

func fakekubeletCommand(s componentContext) (process.Spec, error) {
	self, err := os.Executable()
	if err != nil {
		return process.Spec{}, err
	}
	err = fakekubelet.WriteConfig(s.configFile(), fakekubelet.Config{
		Kubeconfig: s.kubeconfig,
		Dir:        s.cluster.Dir(),
		Nodes:      s.nodes,
	})
	return process.Spec{
		Path:  self,
		Args:  append(slices.Clone(simulateKubeletArgs), "--config", s.configFile()),
		Ready: kubeletsReady(s.cluster.Dir(), s.nodes),
	}, err
}

func lifecycleCommand(s componentContext) (process.Spec, error) {
	var identities lifecycleconfig.Identities
	if s.scheduler == schedulerKueue {
		identities.Queues = []string{kueueUser}
	}
	return productSpec(s, "lifecycle", lifecycleconfig.Config{
		TypeMeta: metav1.TypeMeta{APIVersion: config.APIVersion, Kind: lifecycleconfig.Kind},
		Common:   s.commonConfig(),
		// The lock of the folder allows only one process. A Lease would only delay the
		// start after a crash.
		LeaderElection: lifecycleconfig.LeaderElection{Disabled: true},
		GPUPodsOutside: lifecycleconfig.Deny,
		Identities:     identities,
		Mail:           s.mailConfig(),
	})
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

// agentCommand returns the command of a node's agent. The node's folder replaces the
// host's file system.
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
		DevicePlugin: agentconfig.Daemon{Command: strings.Join(plugin, " ")},
		// After a step of policy time the use is known within seconds.
		Intervals: agentconfig.Intervals{Report: metav1.Duration{Duration: 3 * time.Second}},
	})
}

// The ports of Sluice's own components.
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

// productSpec writes the configuration of one of Sluice's own components and
// returns its process.
func productSpec(s componentContext, program string, content any) (process.Spec, error) {
	path, err := siblingProgram(program)
	if err != nil {
		return process.Spec{}, err
	}
	raw, err := yaml.Marshal(content)
	if err != nil {
		return process.Spec{}, fmt.Errorf("encode configuration: %w", err)
	}
	if err := os.WriteFile(s.configFile(), raw, 0o600); err != nil {
		return process.Spec{}, fmt.Errorf("write configuration: %w", err)
	}
	return process.Spec{Path: path, Args: []string{"--config", s.configFile()}, Ready: cluster.Readyz(s.loopbackAddress(healthPort))}, nil
}
