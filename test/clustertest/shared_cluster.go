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
// A test binary has at most one shared cluster. A test that needs its own, to misconfigure it, uses StartCluster.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
)

// Setup prepares the shared cluster before the first test, for example with CRDs, webhooks
// or nodes. What it starts ends with the cluster by c.BeforeStop.
type Setup func(ctx context.Context, c *Cluster) error

// sharedState holds the test binary's cluster.
var sharedState struct {
	sync.Mutex
	ctx     context.Context // of the start; nil without Main
	setups  []Setup
	cluster *Cluster
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
func Start(t testing.TB) *Cluster {
	t.Helper()
	c, err := sharedCluster()
	if err != nil {
		t.Fatal(err)
	}
	showLogsOnFailure(t, c)
	return c
}

func sharedCluster() (*Cluster, error) {
	sharedState.Lock()
	defer sharedState.Unlock()
	if sharedState.cluster == nil && sharedState.err == nil {
		sharedState.cluster, sharedState.err = startShared()
	}
	return sharedState.cluster, sharedState.err
}

func startShared() (*Cluster, error) {
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

func startOrAttach(ctx context.Context) (*Cluster, error) {
	if kubeconfig := os.Getenv("SLUICE_KUBECONFIG"); kubeconfig != "" {
		return attachCluster(kubeconfig)
	}
	return StartCluster(ctx)
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
