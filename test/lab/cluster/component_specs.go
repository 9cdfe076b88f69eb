// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"strconv"

	"sluice.dev/test/lab/cluster/process"
)

// etcdSpec describes etcd. It runs without fsync, which makes writes several times faster:
// clusters for tests and trials may lose their data with the machine.
func (p *controlPlaneSetup) etcdSpec() (process.Spec, error) {
	ready, err := newHealthProbe(httpsURL(p.ports.Etcd)+"/readyz", p.etcdCA, p.etcdPair)
	if err != nil {
		return process.Spec{}, err
	}
	client, peer := httpsURL(p.ports.Etcd), httpsURL(p.ports.EtcdPeer)
	return process.Spec{
		Name:  Etcd,
		Ready: ready,
		Args: []string{
			"--name=sluice",
			"--data-dir=" + p.folder.pathOf("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=sluice=" + peer,
			"--cert-file=" + p.pkiFile("etcd.crt"),
			"--key-file=" + p.pkiFile("etcd.key"),
			"--client-cert-auth",
			"--trusted-ca-file=" + p.etcdCA.CertFile(),
			"--peer-cert-file=" + p.pkiFile("etcd.crt"),
			"--peer-key-file=" + p.pkiFile("etcd.key"),
			"--peer-client-cert-auth",
			"--peer-trusted-ca-file=" + p.etcdCA.CertFile(),
			"--unsafe-no-fsync",
			// A single member elects itself when its election timeout is over: a short one
			// starts the cluster half a second sooner.
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

// egressConfig leads the API server's connections to Services, such as those of webhooks, and
// to nodes through the socket of a proxy, since this machine does not route to their addresses.
const egressConfig = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds: {udsName: %q}
`

// serviceSocket is the name of the proxy's socket in the cluster's folder.
const serviceSocket = "services.sock"

// apiServerSpec describes an API server with the access control of a real cluster: RBAC,
// the Node authorizer, the default admission plugins, NodeRestriction, and no anonymous
// users.
func (p *controlPlaneSetup) apiServerSpec() (process.Spec, error) {
	ready, err := newHealthProbe(httpsURL(p.ports.APIServer)+"/readyz", p.ca, p.adminPair)
	if err != nil {
		return process.Spec{}, err
	}
	egress := p.folder.pathOf("egress-selector.yaml")
	if err := writeFile(egress, fmt.Appendf(nil, egressConfig, p.folder.pathOf(serviceSocket))); err != nil {
		return process.Spec{}, fmt.Errorf("write configuration of %s: %w", APIServer, err)
	}
	return process.Spec{
		Name:  APIServer,
		Ready: ready,
		Args: []string{
			"--bind-address=" + loopback,
			"--advertise-address=" + loopback,
			"--secure-port=" + strconv.Itoa(p.ports.APIServer),
			"--tls-cert-file=" + p.pkiFile(APIServer+".crt"),
			"--tls-private-key-file=" + p.pkiFile(APIServer+".key"),
			"--client-ca-file=" + p.ca.CertFile(),
			"--anonymous-auth=false",
			"--requestheader-client-ca-file=" + p.frontCA.CertFile(),
			"--requestheader-allowed-names=" + frontProxyUser,
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + p.pkiFile("front-proxy-client.crt"),
			"--proxy-client-key-file=" + p.pkiFile("front-proxy-client.key"),
			"--kubelet-certificate-authority=" + p.ca.CertFile(),
			"--kubelet-client-certificate=" + p.pkiFile("apiserver-kubelet-client.crt"),
			"--kubelet-client-key=" + p.pkiFile("apiserver-kubelet-client.key"),
			// The proxy to the nodes knows them by name.
			"--kubelet-preferred-address-types=Hostname",
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
			"--etcd-servers=" + httpsURL(p.ports.Etcd),
			"--etcd-cafile=" + p.etcdCA.CertFile(),
			"--etcd-certfile=" + p.pkiFile("etcd-client.crt"),
			"--etcd-keyfile=" + p.pkiFile("etcd-client.key"),
			"--service-account-issuer=" + serviceAccountIss,
			"--service-account-key-file=" + p.pkiFile("sa.pub"),
			"--service-account-signing-key-file=" + p.pkiFile("sa.key"),
			"--service-cluster-ip-range=" + serviceRange,
			"--egress-selector-config-file=" + egress,
			// Pods cannot use an endpoint on loopback.
			"--endpoint-reconciler-type=none",
			"--profiling=false",
			"--v=0",
		},
	}, nil
}

// controllerManagerSpec runs all controllers that are on by default, each with its own
// service account. Admission then sees which controller creates a Job's pods.
func (p *controlPlaneSetup) controllerManagerSpec() (process.Spec, error) {
	ready, err := newHealthProbe(httpsURL(p.ports.ControllerManager)+"/healthz", p.ca, p.adminPair)
	if err != nil {
		return process.Spec{}, err
	}
	// The controller manager would create its default folder outside of the cluster's.
	flexvolumes, err := p.folder.makeDir("flexvolumes")
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
			"--tls-cert-file=" + p.pkiFile(ControllerManager+".crt"),
			"--tls-private-key-file=" + p.pkiFile(ControllerManager+".key"),
			"--root-ca-file=" + p.ca.CertFile(),
			"--service-account-private-key-file=" + p.pkiFile("sa.key"),
			"--cluster-signing-cert-file=" + p.ca.CertFile(),
			"--cluster-signing-key-file=" + p.ca.KeyFile(),
			"--use-service-account-credentials",
			"--flex-volume-plugin-dir=" + flexvolumes,
			// Each component runs once: leader election would only slow down restarts.
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

// schedulerSpec describes the default scheduler with its default profile.
func (p *controlPlaneSetup) schedulerSpec() (process.Spec, error) {
	ready, err := newHealthProbe(httpsURL(p.ports.Scheduler)+"/readyz", p.ca, p.adminPair)
	if err != nil {
		return process.Spec{}, err
	}
	kubeconfig := p.componentKubeconfig(Scheduler)
	config := p.folder.pathOf("kube-scheduler.yaml")
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
			"--tls-cert-file=" + p.pkiFile(Scheduler+".crt"),
			"--tls-private-key-file=" + p.pkiFile(Scheduler+".key"),
			"--v=0",
		},
	}, nil
}
