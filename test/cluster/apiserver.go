// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strconv"

	"sluice.dev/test/cluster/process"
)

// apiServer is guarded like a real cluster's: RBAC and the Node authorizer, the
// default admission plugins and NodeRestriction, nobody without a name.
func (p *plane) apiServer() (process.Spec, error) {
	ready, err := probe(httpsURL(p.ports.APIServer)+"/readyz", p.ca, p.adminPair)
	if err != nil {
		return process.Spec{}, err
	}
	return process.Spec{
		Name:  APIServer,
		Ready: ready,
		Args: []string{
			"--bind-address=" + loopback,
			"--advertise-address=" + loopback,
			"--secure-port=" + strconv.Itoa(p.ports.APIServer),
			"--tls-cert-file=" + p.key(APIServer+".crt"),
			"--tls-private-key-file=" + p.key(APIServer+".key"),
			"--client-ca-file=" + p.ca.CertFile(),
			"--anonymous-auth=false",
			"--requestheader-client-ca-file=" + p.frontCA.CertFile(),
			"--requestheader-allowed-names=" + frontProxyUser,
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + p.key("front-proxy-client.crt"),
			"--proxy-client-key-file=" + p.key("front-proxy-client.key"),
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
			"--etcd-servers=" + httpsURL(p.ports.Etcd),
			"--etcd-cafile=" + p.etcdCA.CertFile(),
			"--etcd-certfile=" + p.key("etcd-client.crt"),
			"--etcd-keyfile=" + p.key("etcd-client.key"),
			"--service-account-issuer=" + serviceAccountIss,
			"--service-account-key-file=" + p.key("sa.pub"),
			"--service-account-signing-key-file=" + p.key("sa.key"),
			"--service-cluster-ip-range=" + serviceRange,
			// An address on loopback is no endpoint that pods could use.
			"--endpoint-reconciler-type=none",
			"--profiling=false",
			"--v=0",
		},
	}, nil
}
