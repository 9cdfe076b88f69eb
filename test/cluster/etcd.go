// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sluice.dev/test/cluster/process"
)

// etcd is the store. It does without fsync: a cluster for a test or a trial loses
// nothing that matters with the machine, and writes several times faster.
func (p *plane) etcd() (process.Spec, error) {
	ready, err := probe(httpsURL(p.ports.Etcd)+"/readyz", p.etcdCA, p.etcdPair)
	if err != nil {
		return process.Spec{}, err
	}
	client, peer := httpsURL(p.ports.Etcd), httpsURL(p.ports.EtcdPeer)
	return process.Spec{
		Name:  Etcd,
		Ready: ready,
		Args: []string{
			"--name=sluice",
			"--data-dir=" + p.folder.in("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=sluice=" + peer,
			"--cert-file=" + p.key("etcd.crt"),
			"--key-file=" + p.key("etcd.key"),
			"--client-cert-auth",
			"--trusted-ca-file=" + p.etcdCA.CertFile(),
			"--peer-cert-file=" + p.key("etcd.crt"),
			"--peer-key-file=" + p.key("etcd.key"),
			"--peer-client-cert-auth",
			"--peer-trusted-ca-file=" + p.etcdCA.CertFile(),
			"--unsafe-no-fsync",
			// A member without peers elects itself, but only once its time-out is
			// over: a short one starts the cluster half a second sooner.
			"--heartbeat-interval=50",
			"--election-timeout=250",
			// Room for a hundred thousand pods and their history.
			"--quota-backend-bytes=8589934592",
			"--snapshot-count=10000",
			"--log-level=warn",
			"--log-outputs=stderr",
		},
	}, nil
}
