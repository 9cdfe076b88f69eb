// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// sickFor is for how long nothing is written to a GPU on which writes failed for no
// reason that the driver named.
const sickFor = 5 * time.Minute

// errStuck says that the driver has not answered, or not yet, for the GPU.
var errStuck = errors.New("the driver does not answer")

// ward knows which GPUs are worked on, do not answer, or failed.
type ward struct {
	mu    sync.Mutex
	gpus  map[string]*bed
	stuck map[string]int
}

// bed is one GPU.
type bed struct {
	// change is held by who changes the GPU.
	change sync.Mutex
	// sick is why nothing is written to it, until then.
	sick  string
	until time.Time
	// undone is the last change that was undone.
	undone undone
}

func (w *ward) bed(gpu string) *bed {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gpus == nil {
		w.gpus = map[string]*bed{}
	}
	if w.gpus[gpu] == nil {
		w.gpus[gpu] = &bed{}
	}
	return w.gpus[gpu]
}

// sicken keeps writes from the GPU for a while.
func (e *Engine) sicken(gpu, why string) {
	b := e.ward.bed(gpu)
	e.ward.mu.Lock()
	defer e.ward.mu.Unlock()
	b.sick, b.until = why, e.now().Add(sickFor)
}

// sick is why nothing is written to the GPU; "" where it is healthy.
func (e *Engine) sick(gpu string) string {
	b := e.ward.bed(gpu)
	e.ward.mu.Lock()
	defer e.ward.mu.Unlock()
	if b.sick != "" && e.now().After(b.until) {
		b.sick = ""
	}
	return b.sick
}

// ask makes one call to the driver and waits for it no longer than CallTimeout. On a GPU
// of which a call was given up and has not returned no other is made: a driver that
// hangs would take one thread for each. The GPU "" is the driver itself.
func ask[T any](e *Engine, gpu string, call func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if e.ward.waiting(gpu, 0) > 0 {
		return none, fmt.Errorf("%w to an earlier call", errStuck)
	}
	answers := make(chan answer, 1)
	var over atomic.Bool // whoever sets it has the last word: the answer, or the time
	go func() {
		value, err := call()
		if !over.CompareAndSwap(false, true) {
			e.ward.waiting(gpu, -1)
		}
		answers <- answer{value, err}
	}()
	limit := time.NewTimer(e.callTimeout())
	defer limit.Stop()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-limit.C:
	}
	e.ward.waiting(gpu, +1)
	if over.CompareAndSwap(false, true) {
		return none, fmt.Errorf("%w within %v", errStuck, e.callTimeout())
	}
	e.ward.waiting(gpu, -1) // it came in the last moment
	a := <-answers
	return a.value, a.err
}

// waiting adds to how many calls on the GPU were given up and have not returned, and says
// how many those are.
func (w *ward) waiting(gpu string, more int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck == nil {
		w.stuck = map[string]int{}
	}
	w.stuck[gpu] += more
	return w.stuck[gpu]
}

// do is ask for calls that answer nothing.
func (e *Engine) do(gpu string, call func() error) error {
	_, err := ask(e, gpu, func() (struct{}, error) { return struct{}{}, call() })
	return err
}
