// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"testing"
	"testing/synctest"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"sluice.dev/gpuagent/nvml"
)

// The library is not unloaded during a call, and later calls wait.
func TestShutdownWaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, server, d := newInitializedLibrary(t)
		var order []string
		d.GetUtilizationRatesFunc = func() (gonvml.Utilization, gonvml.Return) {
			time.Sleep(10 * time.Second)
			order = append(order, "call")
			return gonvml.Utilization{}, gonvml.SUCCESS
		}
		server.ShutdownFunc = func() gonvml.Return {
			order = append(order, "shutdown")
			return gonvml.SUCCESS
		}
		go func() { _, _ = l.Utilization(d.UUID) }()
		synctest.Wait()
		down := make(chan error, 1)
		go func() { down <- l.Shutdown() }()
		synctest.Wait()
		_, err := l.DriverVersion() // waits, and then the library is unloaded
		requireError(t, err, nvml.ErrUninitialized)
		if err := <-down; err != nil {
			t.Error(err)
		}
		requireEqual(t, order, []string{"call", "shutdown"})
	})
}

// A GPU that never answers blocks neither other calls nor Shutdown forever.
func TestHungCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, d := newInitializedLibrary(t)
		broken := make(chan struct{})
		d.GetUtilizationRatesFunc = func() (gonvml.Utilization, gonvml.Return) {
			<-broken
			return gonvml.Utilization{}, gonvml.SUCCESS
		}
		go func() { _, _ = l.Utilization(d.UUID) }()
		synctest.Wait()
		if _, err := l.DriverVersion(); err != nil {
			t.Errorf("beside it: %v", err)
		}
		begun := time.Now()
		requireError(t, l.Shutdown(), nvml.ErrTimeout)
		requireError(t, l.Reset(d.UUID), nvml.ErrTimeout)
		if took := time.Since(begun); took != 2*idleTimeout {
			t.Errorf("it took %s", took)
		}
		if _, err := l.DriverVersion(); err != nil {
			t.Errorf("after it: %v", err)
		}
		close(broken)
		synctest.Wait()
		if err := l.Shutdown(); err != nil {
			t.Error(err)
		}
	})
}
