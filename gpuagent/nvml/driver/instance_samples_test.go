// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

// newSampledInstance returns the driver of an H100 in MIG mode with one instance.
func newSampledInstance(t *testing.T) (b *fakeBinding, l *library, gpu string, instance uint32) {
	t.Helper()
	gpu = "GPU-00000000-0000-0000-0000-000000000001"
	node, err := simulator.New(simulator.Config{GPUs: []simulator.GPU{{Model: "H100-80GB", UUID: gpu, Mode: nvml.Enabled}}})
	if err != nil {
		t.Fatal(err)
	}
	b = newFakeBinding(node.Open())
	l = newLibrary(b, Config{})
	if err := l.Init(); err != nil {
		t.Fatal(err)
	}
	made, err := l.CreateInstance(gpu, 9, nvml.Placement{Start: 0, Size: 4})
	if err != nil {
		t.Fatal(err)
	}
	return b, l, gpu, made.ID
}

// The library's samples are no memory of Go: each is freed with the next sample of its instance, with
// the instance, and with the connection.
func TestInstanceSamplesAreFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, gpu, instance := newSampledInstance(t)
		for range 5 {
			if _, err := l.InstanceUtilization(gpu, instance); err != nil {
				t.Fatal(err)
			}
			time.Sleep(minSampleInterval)
		}
		if got := b.samples.Load(); got != 1 {
			t.Errorf("%d samples of one instance", got)
		}
		if err := l.DestroyInstance(gpu, instance); err != nil {
			t.Fatal(err)
		}
		if _, err := l.InstanceUtilization(gpu, instance); !errors.Is(err, nvml.ErrNotFound) {
			t.Errorf("a former instance: %v", err)
		}
		if got := b.samples.Load(); got != 0 {
			t.Errorf("%d samples of no instance", got)
		}
		if _, err := l.CreateInstance(gpu, 9, nvml.Placement{Start: 0, Size: 4}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.InstanceUtilization(gpu, instance); err != nil {
			t.Fatal(err)
		}
		if err := l.Shutdown(); err != nil {
			t.Fatal(err)
		}
		if got := b.samples.Load(); got != 0 {
			t.Errorf("%d samples after Shutdown", got)
		}
	})
}

// What the library computes from the samples of two instances need not be a percentage.
func TestInstanceUtilizationOutOfRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, gpu, instance := newSampledInstance(t)
		for _, tc := range []struct {
			value float64
			ret   gonvml.Return
			want  int
		}{
			{0, gonvml.SUCCESS, nvml.UnknownPercent}, // the first
			{0, gonvml.SUCCESS, 0},
			{0.2, gonvml.SUCCESS, 1},
			{100, gonvml.SUCCESS, 100},
			{math.NaN(), gonvml.SUCCESS, nvml.UnknownPercent},
			{-3, gonvml.SUCCESS, nvml.UnknownPercent},
			{1e9, gonvml.SUCCESS, nvml.UnknownPercent},
			{50, gonvml.ERROR_NO_DATA, nvml.UnknownPercent},
		} {
			b.GpmMetricsGetFunc = func(get *gonvml.GpmMetricsGetType) gonvml.Return {
				get.Metrics[0].Value, get.Metrics[0].NvmlReturn = tc.value, uint32(tc.ret)
				return gonvml.SUCCESS
			}
			if got, err := l.InstanceUtilization(gpu, instance); err != nil || got != tc.want {
				t.Errorf("%v (%v): %d, %v; want %d", tc.value, tc.ret, got, err, tc.want)
			}
			time.Sleep(minSampleInterval)
		}
		b.ExtensionsFunc = func() gonvml.ExtendedInterface {
			return &mock.ExtendedInterface{LookupSymbolFunc: func(symbol string) error {
				if symbol == "nvmlGpmMigSampleGet" {
					return errors.New("undefined")
				}
				return nil
			}}
		}
		l.functions.Clear() // as when another version is loaded
		if _, err := l.InstanceUtilization(gpu, instance); !errors.Is(err, nvml.ErrNotSupported) {
			t.Errorf("a library without GPM: %v", err)
		}
	})
}
