// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"sluice.dev/test/lab/cluster/process"
)

const (
	adminUser         = "kubernetes-admin"
	adminGroup        = "system:masters"
	controllersUser   = "system:kube-controller-manager"
	schedulerUser     = "system:kube-scheduler"
	frontProxyUser    = "front-proxy-client"
	serviceAccountIss = "https://kubernetes.default.svc.cluster.local"
	serviceRange      = "10.96.0.0/16"
	kubernetesService = "10.96.0.1" // first address of the range
)

// KubeletClientUser is the common name of the certificate with which the API server connects
// to kubelets. In the API its holder has no rights.
const KubeletClientUser = "kube-apiserver-kubelet-client"

// controlPlaneSetup starts the control plane.
type controlPlaneSetup struct {
	options  Options
	folder   *folder
	programs map[string]string
	ports    ports
	reserved *portReservations

	// The authorities are separate: a user's certificate must not give access to etcd, and
	// must not let its holder act for other users, as the API server does towards
	// aggregated API servers.
	ca, etcdCA, frontCA *CA

	adminPair KeyPair
	etcdPair  KeyPair // the API server's identity towards etcd
}

func newControlPlaneSetup(
	options Options, folder *folder, reserved *portReservations, programs map[string]string,
) (*controlPlaneSetup, error) {
	p := &controlPlaneSetup{options: options, folder: folder, reserved: reserved, programs: programs, ports: folder.state.Ports}
	if options.Port != 0 {
		p.ports.APIServer = options.Port
	}
	keys, err := folder.makeDir("pki")
	if err != nil {
		return nil, fmt.Errorf("create folder for keys: %w", err)
	}
	for name, authority := range map[string]**CA{"ca": &p.ca, "etcd-ca": &p.etcdCA, "front-proxy-ca": &p.frontCA} {
		if *authority, err = OpenCA(keys, name); err != nil {
			return nil, err
		}
	}
	if err := openTokenKey(p.pkiFile("sa.key"), p.pkiFile("sa.pub")); err != nil {
		return nil, err
	}
	return p, p.issueCertificates()
}

// issueCertificates creates new certificates for the components at each start. Only the
// authorities are kept.
func (p *controlPlaneSetup) issueCertificates() error {
	var err error
	if p.adminPair, err = p.ca.Client(adminUser, adminGroup); err != nil {
		return err
	}
	if p.etcdPair, err = p.etcdCA.Client(APIServer); err != nil {
		return err
	}
	if err := p.etcdPair.Write(p.pkiFile("etcd-client.crt"), p.pkiFile("etcd-client.key")); err != nil {
		return err
	}
	front, err := p.frontCA.Client(frontProxyUser)
	if err != nil {
		return err
	}
	if err := front.Write(p.pkiFile("front-proxy-client.crt"), p.pkiFile("front-proxy-client.key")); err != nil {
		return err
	}
	kubelets, err := p.ca.Client(KubeletClientUser)
	if err != nil {
		return err
	}
	if err := kubelets.Write(p.pkiFile("apiserver-kubelet-client.crt"), p.pkiFile("apiserver-kubelet-client.key")); err != nil {
		return err
	}
	member, err := p.etcdCA.Peer(Etcd)
	if err != nil {
		return err
	}
	if err := member.Write(p.pkiFile("etcd.crt"), p.pkiFile("etcd.key")); err != nil {
		return err
	}
	names := []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		kubernetesService,
	}
	for name, hosts := range map[string][]string{APIServer: names, ControllerManager: nil, Scheduler: nil} {
		pair, err := p.ca.Server(hosts...)
		if err != nil {
			return err
		}
		if err := pair.Write(p.pkiFile(name+".crt"), p.pkiFile(name+".key")); err != nil {
			return err
		}
	}
	return nil
}

// pkiFile returns the path of a file in the folder for keys.
func (p *controlPlaneSetup) pkiFile(file string) string { return p.folder.pathOf("pki", file) }

// start starts the components in the order of their dependencies.
func (p *controlPlaneSetup) start(ctx context.Context, group *process.Group) error {
	if err := p.startWithPorts(ctx, group, p.etcdSpec, &p.ports.Etcd, &p.ports.EtcdPeer); err != nil {
		return err
	}
	if err := p.startAPIServer(ctx, group); err != nil {
		return err
	}
	if err := p.writeComponentKubeconfigs(); err != nil {
		return err
	}
	controllers := make(chan error, 1)
	go func() {
		controllers <- p.startWithPorts(ctx, group, p.controllerManagerSpec, &p.ports.ControllerManager)
	}()
	scheduler := p.startWithPorts(ctx, group, p.schedulerSpec, &p.ports.Scheduler)
	if err := errors.Join(<-controllers, scheduler); err != nil {
		return err
	}
	p.folder.state.Ports = p.ports
	return p.folder.writeState()
}

func (p *controlPlaneSetup) startAPIServer(ctx context.Context, group *process.Group) error {
	before := p.ports.APIServer
	err := p.startWithPorts(ctx, group, p.apiServerSpec, &p.ports.APIServer)
	if err == nil && before != 0 && p.ports.APIServer != before {
		p.options.progressf("port %d, which the cluster had before, is taken: kubeconfigs from then have to be renewed for port %d",
			before, p.ports.APIServer)
	}
	return err
}

// startWithPorts starts a component on free ports, and tries others if another program
// takes one first. It never replaces the port that the user requested.
func (p *controlPlaneSetup) startWithPorts(
	ctx context.Context, group *process.Group, component func() (process.Spec, error), slots ...*int,
) error {
	for attempt := 1; ; attempt++ {
		requested := p.options.Port != 0 && slots[0] == &p.ports.APIServer
		if requested {
			if err := checkPort(p.options.Port); err != nil {
				return err
			}
			p.reserved.reserveRequested(p.options.Port)
		} else if err := p.reserved.reserveAll(slots...); err != nil {
			return err
		}
		spec, err := component()
		if err != nil {
			return err
		}
		spec.Path = p.programs[spec.Name]
		spec.Args = append(spec.Args, p.options.ExtraArgs[spec.Name]...)
		spec.ReadyTimeout = p.options.ReadyTimeout
		err = group.Start(ctx, spec)
		if err == nil || requested || !portTaken(err) || attempt == startAttempts {
			return err
		}
	}
}

func (p *controlPlaneSetup) adminConfig() (*rest.Config, string, error) {
	path := p.folder.pathOf("kubeconfig")
	if err := writeKubeconfig(path, p.clusterEntry(), adminUser, certificateAuthInfo(p.adminPair), ""); err != nil {
		return nil, "", err
	}
	config, err := loadConfig(path)
	return config, path, err
}

// clusterEntry returns the API server's address and certificate authority, for kubeconfigs.
func (p *controlPlaneSetup) clusterEntry() *clientcmdapi.Cluster {
	cluster := clientcmdapi.NewCluster()
	cluster.Server, cluster.CertificateAuthorityData = httpsURL(p.ports.APIServer), p.ca.CertPEM()
	return cluster
}

// writeComponentKubeconfigs writes the kubeconfigs of the components that are clients.
func (p *controlPlaneSetup) writeComponentKubeconfigs() error {
	for name, user := range map[string]string{ControllerManager: controllersUser, Scheduler: schedulerUser} {
		pair, err := p.ca.Client(user)
		if err != nil {
			return err
		}
		if err := writeKubeconfig(p.componentKubeconfig(name), p.clusterEntry(), user, certificateAuthInfo(pair), ""); err != nil {
			return err
		}
	}
	return nil
}

func (p *controlPlaneSetup) componentKubeconfig(name string) string {
	return p.folder.pathOf("pki", name+".kubeconfig")
}
