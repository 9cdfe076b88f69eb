// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/build"
	"sluice.dev/test/cluster/clustertest"
	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/kwok"
	"sluice.dev/test/cluster/process"
)

const (
	namespace = "sluice-sim"
	whole     = "dgx-1" // eight GPUs
	cut       = "dgx-2" // 8 x (2 x 1g.5gb, 1 x 2g.10gb, 1 x 3g.20gb)
	empty     = "dgx-3" // eight GPUs in MIG mode

	// configVariable makes the test binary a fake kubelet: a process of its own,
	// which can be killed.
	configVariable = "SLUICE_TEST_FAKEKUBELET_CONFIG"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(configVariable); path != "" {
		if err := play(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	clustertest.Main(m, simulate)
}

func play(path string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := fakekubelet.LoadConfig(path)
	if err != nil {
		return err
	}
	return fakekubelet.Run(ctx, cfg)
}

// simulate starts kwok and the fake kubelet, each with its own rights only.
func simulate(ctx context.Context, c *cluster.Cluster) error {
	admin, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return err
	}
	sim := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := client.IgnoreAlreadyExists(admin.Create(ctx, sim)); err != nil {
		return err
	}
	for doc := range bytes.SplitSeq(bytes.Join([][]byte{kwok.RBAC, fakekubelet.RBAC}, []byte("\n---\n")), []byte("\n---\n")) {
		var object unstructured.Unstructured
		if err := yaml.Unmarshal(doc, &object.Object); err != nil {
			return err
		}
		if err := client.IgnoreAlreadyExists(admin.Create(ctx, &object)); err != nil {
			return err
		}
	}
	return errors.Join(startKwok(ctx, c), startKubelet(ctx, c))
}

func startKwok(ctx context.Context, c *cluster.Cluster) error {
	programs, err := build.Programs(ctx, os.Stderr, "kwok")
	if err != nil {
		return err
	}
	kubeconfig, err := c.ServiceAccountKubeconfig(ctx, namespace, "kwok")
	if err != nil {
		return err
	}
	command, err := kwok.Write(filepath.Join(c.Dir(), "kwok"), kwok.Options{Kubeconfig: kubeconfig})
	if err != nil {
		return err
	}
	return c.Processes().Start(ctx, process.Spec{Name: "kwok", Path: programs["kwok"], Args: command.Args, Env: command.Env})
}

func startKubelet(ctx context.Context, c *cluster.Cluster) error {
	kubeconfig, err := c.ServiceAccountKubeconfig(ctx, namespace, "fakekubelet")
	if err != nil {
		return err
	}
	path := filepath.Join(c.Dir(), "fakekubelet.yaml")
	if err := fakekubelet.WriteConfig(path, fakekubelet.Config{
		Kubeconfig: kubeconfig,
		Dir:        c.Dir(),
		Nodes: []fakekubelet.Node{
			fakekubelet.DGXA100(whole, "dgx"), fakekubelet.DGXA100Balanced(cut, "dgx-mig"), fakekubelet.DGXA100MIG(empty, "dgx-mig"),
		},
	}); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return c.Processes().Start(ctx, process.Spec{
		Name: "fakekubelet", Path: self, Env: []string{configVariable + "=" + path},
		Ready: func(ctx context.Context) error {
			for _, node := range []string{whole, cut, empty} {
				if _, err := listPodResources(ctx, socketOf(c.Dir(), node)); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

func socketOf(dir, node string) string {
	return filepath.Join(dir, "nodes", node, "pod-resources", "kubelet.sock")
}

// asking has the PodResources client of a socket asked by f.
func asking(socket string, f func(podresourcesv1.PodResourcesListerClient) error) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	return errors.Join(f(podresourcesv1.NewPodResourcesListerClient(connection)), connection.Close())
}

func listPodResources(ctx context.Context, socket string) (pods []*podresourcesv1.PodResources, err error) {
	err = asking(socket, func(c podresourcesv1.PodResourcesListerClient) error {
		response, err := c.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
		pods = response.GetPodResources()
		return err
	})
	return pods, err
}
