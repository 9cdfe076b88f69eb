// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strconv"

	"sluice.dev/test/cluster/process"
)

// controllerManager runs all controllers that are on by default, each under its
// own service account: admission then sees who really makes a Job's pods.
func (p *plane) controllerManager() (process.Spec, error) {
	ready, err := probe(httpsURL(p.ports.ControllerManager)+"/healthz", p.ca, p.adminPair)
	if err != nil {
		return process.Spec{}, err
	}
	// The default lies outside of our folder, and would be made there.
	flexvolumes, err := p.folder.makeSub("flexvolumes")
	if err != nil {
		return process.Spec{}, err
	}
	kubeconfig := p.componentKubeconfig(ControllerManager)
	return process.Spec{
		Name:  ControllerManager,
		Ready: ready,
		Args: []string{
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--client-ca-file=" + p.ca.CertFile(),
			"--bind-address=" + loopback,
			"--secure-port=" + strconv.Itoa(p.ports.ControllerManager),
			"--tls-cert-file=" + p.key(ControllerManager+".crt"),
			"--tls-private-key-file=" + p.key(ControllerManager+".key"),
			"--root-ca-file=" + p.ca.CertFile(),
			"--service-account-private-key-file=" + p.key("sa.key"),
			"--cluster-signing-cert-file=" + p.ca.CertFile(),
			"--cluster-signing-key-file=" + p.ca.KeyFile(),
			"--use-service-account-credentials",
			"--flex-volume-plugin-dir=" + flexvolumes,
			// There is one of each: an election would only make a restart slower.
			"--leader-elect=false",
			"--kube-api-qps=500",
			"--kube-api-burst=1000",
			"--controller-shutdown-timeout=2s",
			"--pvclaimbinder-sync-period=1m",
			"--profiling=false",
			"--v=0",
		},
	}, nil
}
