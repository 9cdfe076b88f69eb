// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"sluice.dev/test/cluster/pki"
	"sluice.dev/test/cluster/process"
)

const (
	adminUser         = "kubernetes-admin"
	adminGroup        = "system:masters"
	controllersUser   = "system:kube-controller-manager"
	schedulerUser     = "system:kube-scheduler"
	frontProxyUser    = "front-proxy-client"
	serviceAccountIss = "https://kubernetes.default.svc.cluster.local"
	serviceRange      = "10.96.0.0/16"
	kubernetesService = "10.96.0.1" // the range's first address
)

// plane is the control plane that is being started.
type plane struct {
	options  Options
	folder   *folder
	programs map[string]string
	ports    ports
	reserved *reservations

	// Three authorities: whoever holds a certificate of a user of Kubernetes must
	// neither be able to walk past it to etcd, nor to speak for other users as
	// the API server does towards aggregated ones.
	ca, etcdCA, frontCA *pki.CA

	adminPair pki.Pair
	etcdPair  pki.Pair // the API server's towards etcd
}

func newPlane(options Options, folder *folder, reserved *reservations, programs map[string]string) (*plane, error) {
	p := &plane{options: options, folder: folder, reserved: reserved, programs: programs, ports: folder.state.Ports}
	if options.Port != 0 {
		p.ports.APIServer = options.Port
	}
	keys, err := folder.makeSub("pki")
	if err != nil {
		return nil, fmt.Errorf("make folder for keys: %w", err)
	}
	for name, authority := range map[string]**pki.CA{"ca": &p.ca, "etcd-ca": &p.etcdCA, "front-proxy-ca": &p.frontCA} {
		if *authority, err = pki.OpenCA(keys, name); err != nil {
			return nil, err
		}
	}
	if err := pki.OpenTokenKey(p.key("sa.key"), p.key("sa.pub")); err != nil {
		return nil, err
	}
	return p, p.issue()
}

// issue makes the certificates of the components anew at each start: only the
// authorities have to last.
func (p *plane) issue() error {
	var err error
	if p.adminPair, err = p.ca.Client(adminUser, adminGroup); err != nil {
		return err
	}
	if p.etcdPair, err = p.etcdCA.Client(APIServer); err != nil {
		return err
	}
	if err := p.etcdPair.Write(p.key("etcd-client.crt"), p.key("etcd-client.key")); err != nil {
		return err
	}
	front, err := p.frontCA.Client(frontProxyUser)
	if err != nil {
		return err
	}
	if err := front.Write(p.key("front-proxy-client.crt"), p.key("front-proxy-client.key")); err != nil {
		return err
	}
	member, err := p.etcdCA.Peer(Etcd)
	if err != nil {
		return err
	}
	if err := member.Write(p.key("etcd.crt"), p.key("etcd.key")); err != nil {
		return err
	}
	names := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", kubernetesService}
	for name, hosts := range map[string][]string{APIServer: names, ControllerManager: nil, Scheduler: nil} {
		pair, err := p.ca.Server(hosts...)
		if err != nil {
			return err
		}
		if err := pair.Write(p.key(name+".crt"), p.key(name+".key")); err != nil {
			return err
		}
	}
	return nil
}

// key returns the path of a file in the folder for keys.
func (p *plane) key(file string) string { return p.folder.in("pki", file) }

// start brings the components up in the order of their needs.
func (p *plane) start(ctx context.Context, group *process.Group) error {
	if err := p.startOn(ctx, group, p.etcd, &p.ports.Etcd, &p.ports.EtcdPeer); err != nil {
		return err
	}
	if err := p.startAPIServer(ctx, group); err != nil {
		return err
	}
	if err := p.writeComponentKubeconfigs(); err != nil {
		return err
	}
	controllers := make(chan error, 1)
	go func() { controllers <- p.startOn(ctx, group, p.controllerManager, &p.ports.ControllerManager) }()
	scheduler := p.startOn(ctx, group, p.scheduler, &p.ports.Scheduler)
	if err := errors.Join(<-controllers, scheduler); err != nil {
		return err
	}
	p.folder.state.Ports = p.ports
	return p.folder.writeState()
}

func (p *plane) startAPIServer(ctx context.Context, group *process.Group) error {
	before := p.ports.APIServer
	err := p.startOn(ctx, group, p.apiServer, &p.ports.APIServer)
	if err == nil && before != 0 && p.ports.APIServer != before {
		p.options.say("port %d, which the cluster had before, is taken: kubeconfigs from then have to be renewed for port %d", before, p.ports.APIServer)
	}
	return err
}

// startOn starts a component on ports that are free, and on others if somebody
// was quicker. The port that a person has asked for is not replaced.
func (p *plane) startOn(ctx context.Context, group *process.Group, component func() (process.Spec, error), slots ...*int) error {
	for attempt := 1; ; attempt++ {
		asked := p.options.Port != 0 && slots[0] == &p.ports.APIServer
		if asked {
			if err := checkPort(p.options.Port); err != nil {
				return err
			}
			p.reserved.keep(p.options.Port)
		} else if err := p.reserved.choose(slots...); err != nil {
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
		if err == nil || asked || !portTaken(err) || attempt == startAttempts {
			return err
		}
	}
}

func (p *plane) admin() (*rest.Config, string, error) {
	path := p.folder.in("kubeconfig")
	if err := writeKubeconfig(path, p.address(), adminUser, byCertificate(p.adminPair), ""); err != nil {
		return nil, "", err
	}
	config, err := loadConfig(path)
	return config, path, err
}

// address says to clients where the API server is and by whom it is certified.
func (p *plane) address() *clientcmdapi.Cluster {
	cluster := clientcmdapi.NewCluster()
	cluster.Server, cluster.CertificateAuthorityData = httpsURL(p.ports.APIServer), p.ca.CertPEM()
	return cluster
}

// writeComponentKubeconfigs writes those of the components that are clients.
func (p *plane) writeComponentKubeconfigs() error {
	for name, user := range map[string]string{ControllerManager: controllersUser, Scheduler: schedulerUser} {
		pair, err := p.ca.Client(user)
		if err != nil {
			return err
		}
		if err := writeKubeconfig(p.componentKubeconfig(name), p.address(), user, byCertificate(pair), ""); err != nil {
			return err
		}
	}
	return nil
}

func (p *plane) componentKubeconfig(name string) string {
	return p.folder.in("pki", name+".kubeconfig")
}
