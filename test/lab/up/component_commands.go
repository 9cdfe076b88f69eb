// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/tools/clientcmd"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/lab/cluster"
	"sluice.dev/test/lab/cluster/fakekubelet"
	"sluice.dev/test/lab/cluster/fakekubelet/streaming"
	"sluice.dev/test/lab/cluster/kwok"
	"sluice.dev/test/lab/cluster/launcher"
	"sluice.dev/test/lab/cluster/process"
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
	streams, err := streamsConfig(s)
	if err != nil {
		return process.Spec{}, err
	}
	err = fakekubelet.WriteConfig(s.configFile(), fakekubelet.Config{
		Kubeconfig: s.kubeconfig,
		Dir:        s.cluster.Dir(),
		Nodes:      s.nodes,
		Streams:    streams,
	})
	return process.Spec{
		Path:  self,
		Args:  append(slices.Clone(simulateKubeletArgs), "--config", s.configFile()),
		Ready: kubeletsReady(s.cluster.Dir(), s.nodes),
	}, err
}

// streamsConfig issues the certificate with which the simulated kubelets serve logs, exec,
// attach and port-forward to the API server.
func streamsConfig(s componentContext) (*streaming.Config, error) {
	names := []string{controlPlaneNode}
	for _, node := range s.nodes {
		names = append(names, node.Name)
	}
	pair, err := s.cluster.CA().Server(names...)
	if err != nil {
		return nil, err
	}
	config := &streaming.Config{
		Certificate: filepath.Join(s.dir, "kubelet.crt"),
		Key:         filepath.Join(s.dir, "kubelet.key"),
		ClientCA:    s.cluster.CA().CertFile(),
		Client:      cluster.KubeletClientUser,
	}
	return config, pair.Write(config.Certificate, config.Key)
}

// launcherCommand returns the launcher, which runs in this process: it adds the pods' containers
// to the cluster's processes.
func launcherCommand(s componentContext) (process.Spec, error) {
	api, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return process.Spec{}, fmt.Errorf("read kubeconfig: %w", err)
	}
	programs := map[string]string{}
	for _, name := range sluicePrograms {
		path, err := siblingProgram(fileOf(name))
		if err != nil {
			return process.Spec{}, err
		}
		programs[name], programs["sluice-"+name] = path, path
	}
	if programs["sluice"], err = siblingProgram("sluice"); err != nil { // the Job of the chart, which removes Sluice
		return process.Spec{}, err
	}
	return process.Spec{
		Run: func(ctx context.Context) error {
			return launcher.Run(ctx, launcher.Config{
				API:         api,
				Namespaces:  []string{v1alpha1.SystemNamespace, v1alpha1.AgentNamespace},
				Dir:         filepath.Join(s.cluster.Dir(), "pods"),
				Group:       s.cluster.Processes(),
				Programs:    programs,
				HostFolder:  func(node, path string) string { return nodeFolder(s.cluster.Dir(), node, path) },
				ProxySocket: s.cluster.ServiceSocket(),
				Kubelet:     launcher.KubeletAddress{Socket: fakekubelet.StreamSocket(s.cluster.Dir()), Port: fakekubelet.KubeletPort},
				Log:         slog.New(slog.NewTextHandler(process.Log(ctx), nil)),
			})
		},
	}, nil
}

// The ports of Kueue.
const (
	healthPort = iota
	metricsPort
	webhookPort
)
