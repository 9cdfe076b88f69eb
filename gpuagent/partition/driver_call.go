// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
)

// unhealthyBackoff is for how long nothing is written to a GPU on which writes failed for no
// reason that the driver named.
const unhealthyBackoff = 5 * time.Minute

// errNotAnswering says that the driver has not answered, or not yet, for the GPU.
var errNotAnswering = errors.New("the driver does not answer")

// gpuStates knows which GPUs are worked on, do not answer, or failed.
type gpuStates struct {
	mu        sync.Mutex
	gpus      map[string]*gpuState
	hungCalls map[string]int
}

// gpuState is one GPU.
type gpuState struct {
	// change is held by who changes the GPU.
	change sync.Mutex
	// unhealthyReason is why nothing is written to it, until then.
	unhealthyReason string
	unhealthyUntil  time.Time
	// lastRollback is the last change that was undone.
	lastRollback rolledBackChange
}

func (w *gpuStates) get(gpu string) *gpuState {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gpus == nil {
		w.gpus = map[string]*gpuState{}
	}
	if w.gpus[gpu] == nil {
		w.gpus[gpu] = &gpuState{}
	}
	return w.gpus[gpu]
}

// markUnhealthy keeps writes from the GPU for a while.
func (e *Engine) markUnhealthy(gpu, why string) {
	b := e.states.get(gpu)
	e.states.mu.Lock()
	defer e.states.mu.Unlock()
	b.unhealthyReason, b.unhealthyUntil = why, e.now().Add(unhealthyBackoff)
}

// unhealthyReason is why nothing is written to the GPU; "" where it is healthy.
func (e *Engine) unhealthyReason(gpu string) string {
	b := e.states.get(gpu)
	e.states.mu.Lock()
	defer e.states.mu.Unlock()
	if b.unhealthyReason != "" && e.now().After(b.unhealthyUntil) {
		b.unhealthyReason = ""
	}
	return b.unhealthyReason
}

// callDriver makes one call to the driver and waits for it no longer than CallTimeout. On a GPU
// of which a call was given up and has not returned no other is made: a driver that
// hangs would take one thread for each. The GPU "" is the driver itself.
func callDriver[T any](e *Engine, gpu string, call func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if e.states.addHungCalls(gpu, 0) > 0 {
		return none, fmt.Errorf("%w to an earlier call", errNotAnswering)
	}
	answers := make(chan answer, 1)
	var over atomic.Bool // whoever sets it has the last word: the answer, or the time
	go func() {
		value, err := call()
		if !over.CompareAndSwap(false, true) {
			e.states.addHungCalls(gpu, -1)
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
	e.states.addHungCalls(gpu, +1)
	if over.CompareAndSwap(false, true) {
		return none, fmt.Errorf("%w within %v", errNotAnswering, e.callTimeout())
	}
	e.states.addHungCalls(gpu, -1) // it came in the last moment
	a := <-answers
	return a.value, a.err
}

// addHungCalls adds to how many calls on the GPU were given up and have not returned, and says
// how many those are.
func (w *gpuStates) addHungCalls(gpu string, more int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hungCalls == nil {
		w.hungCalls = map[string]int{}
	}
	w.hungCalls[gpu] += more
	return w.hungCalls[gpu]
}

// runDriverCall is ask for calls that answer nothing.
func (e *Engine) runDriverCall(gpu string, call func() error) error {
	_, err := callDriver(e, gpu, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

const freeDiskAdvice = "make room on the disk of the agent's directory, or make it writable; nothing is changed before"

var (
	// errJournalWrite marks errors of the journal.
	errJournalWrite = errors.New("the journal cannot be written")
	// errInUse marks that somebody took what was about to be changed.
	errInUse = errors.New("in use")
	// errStale marks that somebody else has changed the GPU since it was looked at.
	errStale = errors.New("somebody else has changed it just now")
	// errUnreadable marks a look that failed for a reason that may pass.
	errUnreadable = errors.New("the GPU cannot be read")
)

// errorClass is what an error means for what was being done.
type errorClass uint8

const (
	// classRejected: asking again would not help.
	classRejected errorClass = iota
	// classTransient: it may go away; the effect is unknown.
	classTransient
	// classNoCapacity: there was no room, or something else was short.
	classNoCapacity
	// classInUse: somebody has it, the driver says.
	classInUse
	// classStale: the picture is old; look again.
	classStale
	// classDenied: the agent lacks the permission.
	classDenied
	// classLost: the GPU cannot be reached.
	classLost
	// classHung: the driver does not answer for it.
	classHung
	// classResetRequired: the GPU has to be reset first.
	classResetRequired
)

var errorClasses = map[errorClass][]error{
	classTransient:     {nvml.ErrNotReady, nvml.ErrInvalidState, nvml.ErrUnknown, nvml.ErrUninitialized, errUnreadable},
	classNoCapacity:    {nvml.ErrInsufficientResources},
	classInUse:         {nvml.ErrInUse},
	classStale:         {errInUse, errStale},
	classDenied:        {nvml.ErrNoPermission},
	classLost:          {nvml.ErrGPULost},
	classHung:          {nvml.ErrTimeout, errNotAnswering},
	classResetRequired: {nvml.ErrResetRequired},
}

func classify(err error) errorClass {
	for k := classTransient; k <= classResetRequired; k++ {
		for _, is := range errorClasses[k] {
			if errors.Is(err, is) {
				return k
			}
		}
	}
	return classRejected
}

// mayHaveTakenEffect tells whether a call that failed so may have had its effect all the same.
func (k errorClass) mayHaveTakenEffect() bool {
	return k == classTransient || k == classLost || k == classHung
}

// retryCounts counts attempts.
type retryCounts struct{ transient, noCapacity, inUse, stale int }

// How often one tries again, and how long one waits before, which doubles.
const (
	maxTransientRetries, transientRetryDelay = 3, 100 * time.Millisecond
	maxCapacityRetries, capacityRetryDelay   = 1, 100 * time.Millisecond
	maxInUseRetries, inUseRetryDelay         = 4, 250 * time.Millisecond
	maxStaleRetries                          = 4
)

// handleError says whether a change that met the error goes on, after a pause, or what is to
// be said.
func (c *gpuChange) handleError(ctx context.Context, err error) (decision, bool) {
	again := func(count *int, limit int, pause time.Duration) bool {
		if *count++; *count > limit {
			return false
		}
		c.engine.sleep(ctx, pause<<(*count-1))
		return true
	}
	switch k := classify(err); {
	case err == nil:
		return decision{}, false
	case ctx.Err() != nil:
		return refuse(Interrupted, v1alpha1.ReasonProgressing, "the agent was told to stop"), true
	case errors.Is(err, errJournalWrite):
		return refuse(JournalFailed, v1alpha1.ReasonJournalFailed, "%v; %s", err, freeDiskAdvice), true
	case k == classDenied:
		return refuse(Denied, v1alpha1.ConditionNoPermission, "%v: the agent has to run privileged, with /proc/driver/nvidia/capabilities/mig/config", err), true
	case k == classLost:
		return refuse(Lost, v1alpha1.ConditionGPULost, "%v: reset the GPU or restart the node; nothing is written to it", err), true
	case k == classResetRequired:
		return resetRequired(err.Error()), true
	case k == classHung:
		return c.markUnhealthy(err), true
	case k == classStale && again(&c.retries.stale, maxStaleRetries, 0):
		return decision{}, false
	case k == classInUse && again(&c.retries.inUse, maxInUseRetries, inUseRetryDelay):
		return decision{}, false
	case k == classStale || k == classInUse:
		return refuse(Reclaiming, v1alpha1.ReasonInUse, "%v", err), true
	case k == classNoCapacity && again(&c.retries.noCapacity, maxCapacityRetries, capacityRetryDelay):
		return decision{}, false
	case k == classTransient && again(&c.retries.transient, maxTransientRetries, transientRetryDelay):
		c.engine.reconnect(err)
		return decision{}, false
	case k == classTransient:
		return c.markUnhealthy(err), true
	default:
		return refuse(RolledBack, v1alpha1.ReasonDriverError, "%v", err), true
	}
}

// markUnhealthy keeps writes from the GPU for a while.
func (c *gpuChange) markUnhealthy(err error) decision {
	v := refuse(Unhealthy, v1alpha1.ReasonDriverError, "%v: nothing is written to it for %v", err, unhealthyBackoff)
	c.engine.markUnhealthy(c.gpu.UUID, v.message)
	return v
}

// reconnect connects to the driver again where it has gone away and come back.
func (e *Engine) reconnect(err error) {
	if errors.Is(err, nvml.ErrUninitialized) {
		_ = e.runDriverCall("", e.Library.Init) // the next call tells
	}
}

// isFinal tells whether nothing more can be done about the GPU now, so that what was begun
// is undone; otherwise it is taken up later.
func (s State) isFinal() bool {
	switch s {
	case Lost, Unhealthy, JournalFailed, Interrupted, Denied:
		return false
	default:
		return true
	}
}
