// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"sync"

	"sluice.dev/gpuagent/nvml"
)

var concurrency = []promise{
	{"many may read at once", nil, readers},
	{"readers see whole layouts while one writes", []Feature{cutting, changing}, readersAndWriter},
}

const (
	atOnce = 8
	rounds = 10
)

func readers(b *bench) {
	var group sync.WaitGroup
	for range atOnce {
		group.Go(func() {
			for range 10 {
				gpus, err := b.GPUs()
				if err != nil || len(gpus) != len(b.gpus) {
					b.Errorf("%d GPUs of %d: %v", len(gpus), len(b.gpus), err)
				}
				for _, gpu := range gpus {
					if _, err := b.Memory(gpu.UUID); err != nil {
						b.Errorf("Memory: %v", err)
					}
					for _, c := range calls {
						if err := c.err; !c.changes {
							b.answered(c.method, err(b, gpu.UUID))
						}
					}
				}
			}
		})
	}
	group.Wait()
}

// answered holds an answer to be one that a reader may get of any GPU: what is not there is
// not found, and what the target lacks is not supported or not known.
func (b *bench) answered(method string, err error) {
	b.Helper()
	for _, code := range []nvml.Error{nvml.ErrUninitialized, nvml.ErrGPULost, nvml.ErrTimeout, nvml.ErrDriverNotLoaded} {
		if errors.Is(err, code) {
			b.Errorf("%s while others read: %v", method, err)
		}
	}
}

func readersAndWriter(b *bench) {
	all := b.places(b.cut())
	var group sync.WaitGroup
	done := make(chan struct{})
	for range atOnce {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					b.whole()
				}
			}
		})
	}
	func() {
		defer close(done)
		for range rounds {
			for _, p := range all {
				made, err := b.CreateInstance(b.gpu.UUID, p.profile.ID, p.at)
				if err != nil {
					b.Errorf("CreateInstance: %v", err)
					return
				}
				if err := b.DestroyInstance(b.gpu.UUID, made.ID); err != nil {
					b.Errorf("DestroyInstance: %v", err)
					return
				}
			}
		}
	}()
	group.Wait()
	b.layout()
}

// whole reads a layout in which there is never more than one instance. An implementation
// that asks for one profile after the other may see one that is gone and one that came.
func (b *bench) whole() {
	b.Helper()
	instances, err := b.Instances(b.gpu.UUID)
	if err != nil {
		b.Errorf("Instances: %v", err)
		return
	}
	for _, it := range instances {
		if it.Placement.Size < 1 {
			b.Errorf("half of an instance: %+v", it)
		}
		if _, err := b.ComputeInstances(b.gpu.UUID, it.ID); err != nil && !errors.Is(err, nvml.ErrNotFound) {
			b.Errorf("ComputeInstances: %v", err)
		}
	}
}
