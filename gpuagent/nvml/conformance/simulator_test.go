// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/conformance"
	"sluice.dev/gpuagent/nvml/simulator"
)

// newNode returns a simulated node with two GPUs of a model and one without MIG.
func newNode(t *testing.T, model string, change func(*simulator.Config)) *simulator.Node {
	t.Helper()
	config := simulator.Config{
		Seed: t.Name(),
		GPUs: []simulator.GPU{{Model: model}, {Model: model}, {Model: "T4"}},
	}
	if change != nil {
		change(&config)
	}
	n, err := simulator.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func nodeUnderTest(library nvml.Library, n *simulator.Node) conformance.Node {
	return conformance.Node{
		Library: library,
		Attach:  func(pid uint32, device string, memoryMiB int64) error { return n.Attach(pid, device, memoryMiB, 50) },
		Detach:  n.Detach,
	}
}

// requireComplete fails unless a target passes every case, without skipped ones.
func requireComplete(t *testing.T, target conformance.Target) {
	t.Helper()
	if tally := conformance.Run(t, target); tally.Skipped > 0 || tally.Passed == 0 {
		t.Errorf("%s: %+v; want all kept and none left out", target.Name, tally)
	}
}

func TestSimulator(t *testing.T) {
	for _, model := range mig.Models() {
		requireComplete(t, conformance.Target{
			Name: model.Name,
			New: func(t *testing.T) conformance.Node {
				n := newNode(t, model.Name, nil)
				return nodeUnderTest(n, n)
			},
		})
	}
}

// TestSimulatorModes tests each way in which a mode takes effect, on GPU models whose default is
// another.
func TestSimulatorModes(t *testing.T) {
	for name, activation := range map[string]simulator.Activation{
		"at once": simulator.AtOnce, "at reset": simulator.AtReset, "at reset, unsaid": simulator.AtResetSilently,
	} {
		for _, model := range []string{"A100-40GB", "H100-80GB"} {
			requireComplete(t, conformance.Target{
				Name: model + " " + name,
				New: func(t *testing.T) conformance.Node {
					n := newNode(t, model, func(c *simulator.Config) {
						c.GPUs[0].Activation, c.GPUs[1].Activation = activation, activation
					})
					return nodeUnderTest(n, n)
				},
			})
		}
	}
}

// TestSimulatorOldDriver tests a driver without profiles while MIG mode is off.
func TestSimulatorOldDriver(t *testing.T) {
	requireComplete(t, conformance.Target{
		Name: "A100-40GB, driver 535",
		New: func(t *testing.T) conformance.Node {
			n := newNode(t, "A100-40GB", func(c *simulator.Config) { c.DriverVersion = "535.183.06" })
			return nodeUnderTest(n, n)
		},
	})
}

func TestSimulatorSameUUIDs(t *testing.T) {
	tally := conformance.Run(t, conformance.Target{
		Name: "A30, reused UUIDs",
		New: func(t *testing.T) conformance.Node {
			n := newNode(t, "A30", func(c *simulator.Config) { c.ReuseUUIDs = true })
			return nodeUnderTest(n, n)
		},
		Lacks: map[conformance.Feature]string{conformance.FreshUUIDs: "the configuration derives them from the identifiers"},
	})
	if tally.Skipped != 1 {
		t.Errorf("%+v; want one left out", tally)
	}
}

// TestSimulatorWithoutMIG tests a GPU model without MIG.
func TestSimulatorWithoutMIG(t *testing.T) {
	tally := conformance.Run(t, conformance.Target{
		Name: "L4",
		New: func(t *testing.T) conformance.Node {
			n := newNode(t, "L4", nil)
			return nodeUnderTest(n, n)
		},
	})
	if tally.Failed > 0 || tally.Passed < 10 {
		t.Errorf("%+v; want at least ten kept", tally)
	}
}

// TestSimulatorOverSocket tests the simulator through its socket.
func TestSimulatorOverSocket(t *testing.T) {
	for _, model := range mig.Models() {
		requireComplete(t, conformance.Target{
			Name: model.Name,
			New: func(t *testing.T) conformance.Node {
				n := newNode(t, model.Name, nil)
				socket := serveNode(t, n)
				return nodeUnderTest(simulator.Dial(socket), n)
			},
		})
	}
}

// serveNode serves a node until the test ends, on a path that is short enough for a socket.
func serveNode(t *testing.T, n *simulator.Node) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nvml")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "nvml.sock")
	listener, err := simulator.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- simulator.Serve(ctx, listener, n) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return socket
}
