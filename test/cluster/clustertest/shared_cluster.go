// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clustertest gives the tests of a package one embedded cluster to share. The first
// test that calls Start starts the cluster; Main stops it when the test binary ends, also
// after a panic, a timeout or an interrupt. A failed test prints what the cluster's
// components logged during it. If SLUICE_KUBECONFIG is set, the tests use that cluster
// instead.
//
//	func TestMain(m *testing.M) { clustertest.Main(m, installCRDs) }
//
//	func TestQuota(t *testing.T) {
//		c := clustertest.Start(t)
//		namespace := clustertest.Namespace(t, c)
//		...
//		clustertest.Eventually(t, func() error { ... })
//	}
//
// A test binary has at most one shared cluster. A test that needs its own, to kill or
// misconfigure it, uses package cluster.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
	"sluice.dev/test/cluster"
)

// Setup prepares the shared cluster before the first test, for example with CRDs, webhooks
// or nodes. Components that it starts in c.Processes() end with the cluster.
type Setup func(ctx context.Context, c *cluster.Cluster) error

// sharedState holds the test binary's cluster.
var sharedState struct {
	sync.Mutex
	ctx     context.Context // of the start; nil without Main
	setups  []Setup
	cluster *cluster.Cluster
	err     error
}

// errStopped is the error of Start after the cluster was stopped.
var errStopped = errors.New("the tests are over")

// Main runs a package's tests, stops the shared cluster, and exits. TestMain calls it. A
// package needs it only for setups and an orderly stop; Start works without it.
func Main(m *testing.M, setups ...Setup) { os.Exit(runTests(m, setups)) }

func runTests(m *testing.M, setups []Setup) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sharedState.Lock()
	sharedState.ctx, sharedState.setups = ctx, setups
	sharedState.Unlock()

	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupts
		fmt.Fprintln(os.Stderr, "interrupted: stopping the cluster")
		cancel() // a start in progress fails and releases the lock for stopShared
		if err := stopShared(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(130)
	}()

	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// Start returns the test binary's cluster and starts it if necessary. It fails the test if
// that is not possible.
func Start(t testing.TB) *cluster.Cluster {
	t.Helper()
	c, err := sharedCluster()
	if err != nil {
		t.Fatal(err)
	}
	showLogsOnFailure(t, c)
	return c
}

func sharedCluster() (*cluster.Cluster, error) {
	sharedState.Lock()
	defer sharedState.Unlock()
	if sharedState.cluster == nil && sharedState.err == nil {
		sharedState.cluster, sharedState.err = startShared()
	}
	return sharedState.cluster, sharedState.err
}

func startShared() (*cluster.Cluster, error) {
	ctx := sharedState.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	c, err := startOrAttach(ctx)
	if err != nil {
		return nil, err
	}
	for _, setup := range sharedState.setups {
		if err := setup(ctx, c); err != nil {
			return nil, errors.Join(fmt.Errorf("set up the cluster: %w", err), c.Stop())
		}
	}
	return c, nil
}

func startOrAttach(ctx context.Context) (*cluster.Cluster, error) {
	if os.Getenv(cluster.AttachVariable) != "" {
		return cluster.Attach(ctx, "")
	}
	return cluster.Start(ctx, cluster.Options{Progress: os.Stderr})
}

func stopShared() error {
	sharedState.Lock()
	defer sharedState.Unlock()
	c := sharedState.cluster
	sharedState.cluster, sharedState.err = nil, errStopped
	if c == nil {
		return nil
	}
	return c.Stop()
}

// InstallKinds is a [Setup] that installs Sluice's CustomResourceDefinitions, and waits until the API
// server serves them. It does not change existing ones in the user's own cluster.
func InstallKinds(ctx context.Context, c *cluster.Cluster) error {
	kinds, err := manifests.Build("crds")
	if err != nil {
		return err
	}
	admin, err := client.New(c.Config(), client.Options{})
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		if err := client.IgnoreAlreadyExists(admin.Create(ctx, kind)); err != nil {
			return fmt.Errorf("install %s: %w", kind.GetName(), err)
		}
	}
	return waitForKinds(ctx, c, len(kinds))
}

// waitForKinds waits until the API server serves a number of Sluice's kinds. A client that asks earlier does not find all of them.
func waitForKinds(ctx context.Context, c *cluster.Cluster, number int) error {
	discoverer, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		resources, err := discoverer.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
		served := slices.DeleteFunc(resources.APIResources, func(r metav1.APIResource) bool { return strings.Contains(r.Name, "/") })
		return len(served) >= number, nil
	})
}

// Admin returns the administrator's client of the shared cluster, for the kinds of
// Kubernetes and of Sluice, for which the package's Main needs the setup [InstallKinds].
func Admin(t testing.TB) client.Client {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(Start(t).Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return admin
}
