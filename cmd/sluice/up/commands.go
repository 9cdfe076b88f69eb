// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/config"
	"sluice.dev/cmd/sluice/up/kueue"
	lifecycleconfig "sluice.dev/lifecycle/config"
	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/kwok"
	"sluice.dev/test/cluster/process"
	webhookconfig "sluice.dev/webhook/config"
)

func kwokCommand(s setting) (process.Spec, error) {
	command, err := kwok.Write(s.dir, kwok.Options{Kubeconfig: s.kubeconfig})
	return process.Spec{Path: s.programs["kwok"], Args: command.Args, Env: command.Env}, err
}

func fakekubeletCommand(s setting) (process.Spec, error) {
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
		Args:  append(slices.Clone(simulateKubelet), "--config", path),
		Ready: kubeletsServe(s.cluster.Dir(), s.nodes),
	}, err
}

func lifecycleCommand(s setting) (process.Spec, error) {
	return product(s, "lifecycle", lifecycleconfig.Config{
		TypeMeta: metav1.TypeMeta{APIVersion: config.APIVersion, Kind: lifecycleconfig.Kind},
		Common:   s.common(),
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
func (s setting) identities() lifecycleconfig.Identities {
	if s.scheduler != schedulerKueue {
		return lifecycleconfig.Identities{}
	}
	return lifecycleconfig.Identities{Queues: []string{kueue.User}}
}

func webhookCommand(s setting) (process.Spec, error) {
	certificates := filepath.Join(s.dir, "certificates")
	if err := s.cluster.IssueServing("webhook.sluice-system.svc", certificates); err != nil {
		return process.Spec{}, err
	}
	return product(s, "webhook", webhookconfig.Config{
		TypeMeta:     metav1.TypeMeta{APIVersion: config.APIVersion, Kind: webhookconfig.Kind},
		Common:       s.common(),
		Listen:       s.address(webhookPort),
		Certificates: certificates,
	})
}

// The meaning of a product component's ports.
const (
	healthPort = iota
	metricsPort
	webhookPort
)

func (s setting) common() config.Common {
	return config.Common{
		Kubeconfig: s.kubeconfig,
		Health:     s.address(healthPort),
		Metrics:    s.address(metricsPort),
		ClockFile:  s.clockFile,
	}
}

// product is one of Sluice's own components with its configuration file.
func product(s setting, name string, content any) (process.Spec, error) {
	path, err := beside(name)
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
	return process.Spec{Path: path, Args: []string{"--config", file}, Ready: cluster.Readyz(s.address(healthPort))}, nil
}
