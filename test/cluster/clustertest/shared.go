// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

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

	"sluice.dev/test/cluster"
)

// Setup prepares the shared cluster once, before the first test has it: CRDs,
// webhooks, nodes. What it starts in c.Processes() ends with the cluster.
type Setup func(ctx context.Context, c *cluster.Cluster) error

// shared is the test binary's cluster.
var shared struct {
	sync.Mutex
	ctx     context.Context // of the start; nil without Main
	setups  []Setup
	cluster *cluster.Cluster
	err     error
}

// errStopped is what Start reports once the cluster was stopped.
var errStopped = errors.New("the tests are over")

// Main runs a package's tests, stops the shared cluster, and exits. It belongs in
// TestMain, and is needed only for setups and for an orderly end: a package
// without it may call Start as well.
func Main(m *testing.M, setups ...Setup) { os.Exit(run(m, setups)) }

func run(m *testing.M, setups []Setup) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	shared.Lock()
	shared.ctx, shared.setups = ctx, setups
	shared.Unlock()

	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupts
		fmt.Fprintln(os.Stderr, "interrupted: stopping the cluster")
		cancel() // a start that is under way gives up, and lets stop have its turn
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(130)
	}()

	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// Start returns the test binary's cluster, and starts it if no test has yet. The
// test fails where that is not possible.
func Start(t testing.TB) *cluster.Cluster {
	t.Helper()
	c, err := obtain()
	if err != nil {
		t.Fatal(err)
	}
	showLogsOnFailure(t, c)
	return c
}

func obtain() (*cluster.Cluster, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil && shared.err == nil {
		shared.cluster, shared.err = start()
	}
	return shared.cluster, shared.err
}

func start() (*cluster.Cluster, error) {
	ctx := shared.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	c, err := startOrAttach(ctx)
	if err != nil {
		return nil, err
	}
	for _, setup := range shared.setups {
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

func stop() error {
	shared.Lock()
	defer shared.Unlock()
	c := shared.cluster
	shared.cluster, shared.err = nil, errStopped
	if c == nil {
		return nil
	}
	return c.Stop()
}
