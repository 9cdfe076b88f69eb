// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"strconv"

	"sluice.dev/test/cluster/process"
)

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: %q
  qps: 500
  burst: 1000
leaderElection:
  leaderElect: false
enableProfiling: false
`

// scheduler is the default scheduler with its default profile.
func (p *plane) scheduler() (process.Spec, error) {
	ready, err := probe(httpsURL(p.ports.Scheduler)+"/readyz", p.ca, p.adminPair)
	if err != nil {
		return process.Spec{}, err
	}
	kubeconfig := p.componentKubeconfig(Scheduler)
	config := p.folder.in("kube-scheduler.yaml")
	if err := writeFile(config, fmt.Appendf(nil, schedulerConfig, kubeconfig)); err != nil {
		return process.Spec{}, fmt.Errorf("write configuration of %s: %w", Scheduler, err)
	}
	return process.Spec{
		Name:  Scheduler,
		Ready: ready,
		Args: []string{
			"--config=" + config,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--client-ca-file=" + p.ca.CertFile(),
			"--bind-address=" + loopback,
			"--secure-port=" + strconv.Itoa(p.ports.Scheduler),
			"--tls-cert-file=" + p.key(Scheduler+".crt"),
			"--tls-private-key-file=" + p.key(Scheduler+".key"),
			"--v=0",
		},
	}, nil
}
