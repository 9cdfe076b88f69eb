// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
)

// unhealthyBackoff is the time for which the engine writes nothing to a GPU after writes failed with an
// unknown error.
const unhealthyBackoff = 5 * time.Minute

// inUseBackoff is the time for which the engine does not try again to change a GPU that the driver reported in use. It is
// shorter than the planner's backoff: the program may have ended since.
const inUseBackoff = 30 * time.Second

// errNotAnswering reports that the driver has not answered for the GPU in time.
var errNotAnswering = errors.New("the driver does not answer")

// gpuStates holds the state of each GPU across calls.
type gpuStates struct {
	mu        sync.Mutex
	gpus      map[string]*gpuState
	hungCalls map[string]int
}

// gpuState is the state of one GPU.
type gpuState struct {
	// change is locked while the GPU is changed.
	change sync.Mutex
	// unhealthyReason is why nothing is written to the GPU until unhealthyUntil.
	unhealthyReason string
	unhealthyUntil  time.Time
	// lastRollback is the last change that was rolled back.
	lastRollback rolledBackChange
	// waitedFor is the layout for which the driver reported the GPU in use during the whole wait. It is
	// tried again without a wait.
	waitedFor string
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

// forget discards which GPUs are unhealthy and which changes failed, but not which calls have not returned.
func (w *gpuStates) forget() {
	w.mu.Lock()
	known := slices.Collect(maps.Values(w.gpus))
	w.mu.Unlock()
	for _, state := range known {
		state.change.Lock() // A change locks it before mu.
		w.mu.Lock()
		state.unhealthyReason, state.lastRollback, state.waitedFor = "", rolledBackChange{}, ""
		w.mu.Unlock()
		state.change.Unlock()
	}
}

// markUnhealthy suspends writes to the GPU.
func (e *Engine) markUnhealthy(gpu, why string) {
	b := e.states.get(gpu)
	e.states.mu.Lock()
	defer e.states.mu.Unlock()
	b.unhealthyReason, b.unhealthyUntil = why, e.now().Add(unhealthyBackoff)
}

// unhealthyReason returns why writes to the GPU are suspended; "" if it is healthy.
func (e *Engine) unhealthyReason(gpu string) string {
	b := e.states.get(gpu)
	e.states.mu.Lock()
	defer e.states.mu.Unlock()
	if b.unhealthyReason != "" && e.now().After(b.unhealthyUntil) {
		b.unhealthyReason = ""
	}
	return b.unhealthyReason
}

// callDriver makes one driver call and waits at most CallTimeout. While an abandoned call on a GPU
// has not returned, it makes no other call there: each would occupy a thread. The GPU "" stands for
// the driver itself.
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
	var over atomic.Bool // Set once: by the result, or by the timeout.
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
	e.states.addHungCalls(gpu, -1) // The result arrived at the last moment.
	a := <-answers
	return a.value, a.err
}

// addHungCalls changes the number of abandoned calls on the GPU that have not returned, and returns
// it.
func (w *gpuStates) addHungCalls(gpu string, more int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hungCalls == nil {
		w.hungCalls = map[string]int{}
	}
	w.hungCalls[gpu] += more
	return w.hungCalls[gpu]
}

// runDriverCall is callDriver for calls without a result.
func (e *Engine) runDriverCall(gpu string, call func() error) error {
	_, err := callDriver(e, gpu, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

const freeDiskAdvice = "free space on the disk of the agent's directory, or make it writable; the GPU stays unchanged until then"

var (
	// errJournalWrite marks errors of the journal.
	errJournalWrite = errors.New("the journal cannot be written")
	// errInUse reports that the target of a change is in use.
	errInUse = errors.New("in use")
	// errStale reports that another program changed the GPU since the observation.
	errStale = errors.New("another program changed it just now")
	// errUnreadable reports an observation that failed, possibly only for now.
	errUnreadable = errors.New("the GPU cannot be read")
)

// errorClass decides how a change continues after an error.
type errorClass uint8

const (
	// classRejected: a retry would not help.
	classRejected errorClass = iota
	// classUnloaded: the driver was unloaded; the effect is unknown.
	classUnloaded
	// classTransient: a retry may help; the effect is unknown.
	classTransient
	// classNoCapacity: the GPU lacks room or another resource.
	classNoCapacity
	// classInUse: the driver reports the target as in use.
	classInUse
	// classStale: the observation is stale; observe again.
	classStale
	// classDenied: the agent lacks permission.
	classDenied
	// classLost: the driver does not reach the GPU.
	classLost
	// classHung: the driver does not answer for the GPU.
	classHung
	// classResetRequired: the GPU has to be reset first.
	classResetRequired
)

var errorClasses = map[errorClass][]error{
	classUnloaded:      {nvml.ErrUninitialized, nvml.ErrDriverNotLoaded, nvml.ErrLibraryNotFound},
	classTransient:     {nvml.ErrNotReady, nvml.ErrInvalidState, nvml.ErrUnknown, errUnreadable},
	classNoCapacity:    {nvml.ErrInsufficientResources},
	classInUse:         {nvml.ErrInUse},
	classStale:         {errInUse, errStale},
	classDenied:        {nvml.ErrNoPermission},
	classLost:          {nvml.ErrGPULost},
	classHung:          {nvml.ErrTimeout, errNotAnswering},
	classResetRequired: {nvml.ErrResetRequired},
}

func classify(err error) errorClass {
	for k := classUnloaded; k <= classResetRequired; k++ {
		for _, is := range errorClasses[k] {
			if errors.Is(err, is) {
				return k
			}
		}
	}
	return classRejected
}

// mayHaveTakenEffect reports whether a failed call may have had its effect.
func (k errorClass) mayHaveTakenEffect() bool {
	return k == classUnloaded || k == classTransient || k == classLost || k == classHung
}

// retryCounts counts attempts.
type retryCounts struct{ transient, noCapacity, inUse, stale int }

// The number of retries and the first wait, which doubles.
const (
	maxTransientRetries, transientRetryDelay = 3, 100 * time.Millisecond
	maxCapacityRetries, capacityRetryDelay   = 1, 100 * time.Millisecond
	maxInUseRetries, inUseRetryDelay         = 7, 250 * time.Millisecond // 32 s in all
	maxStaleRetries                          = 4
	// reloadAfterInUse is the number of retries, after 8 s, before DCGM is reloaded: it may keep handles of
	// a GPU without a process that the driver reports.
	reloadAfterInUse = 5
)

// handleError waits and lets a change continue after an error, or returns its result.
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
		return refuse(Interrupted, v1alpha1.ReasonProgressing, "the agent is stopping"), true
	case errors.Is(err, errJournalWrite):
		return refuse(JournalFailed, v1alpha1.ReasonJournalFailed, "%v; %s", err, freeDiskAdvice), true
	case k == classDenied:
		return refuse(Denied, v1alpha1.ConditionNoPermission,
			"%v: the agent has to run privileged, with /proc/driver/nvidia/capabilities/mig/config", err), true
	case k == classLost:
		return refuse(Lost, v1alpha1.ConditionGPULost, "%v: reset the GPU or reboot the node; the agent writes nothing to it", err), true
	case k == classResetRequired:
		return resetRequired(err.Error()), true
	case k == classHung:
		return c.markUnhealthy(err), true
	case k == classStale && again(&c.retries.stale, maxStaleRetries, 0):
		return decision{}, false
	case k == classInUse && c.state.waitedFor != c.desired.fingerprint() && again(&c.retries.inUse, maxInUseRetries, inUseRetryDelay):
		if c.retries.inUse == reloadAfterInUse && !c.reloaded && c.engine.ReloadMonitoring != nil {
			c.engine.ReloadMonitoring()
			c.reloaded = true
		}
		return decision{}, false
	case k == classStale || k == classInUse:
		v := refuse(Reclaiming, v1alpha1.ReasonInUse, "%v", err)
		if v.gpuInUse = k == classInUse; v.gpuInUse {
			c.state.waitedFor = c.desired.fingerprint()
		}
		return c.nameHolders(ctx, v), true
	case k == classNoCapacity && again(&c.retries.noCapacity, maxCapacityRetries, capacityRetryDelay):
		return decision{}, false
	case (k == classTransient || k == classUnloaded) && again(&c.retries.transient, maxTransientRetries, transientRetryDelay):
		c.engine.reconnect(err)
		return decision{}, false
	case k == classUnloaded:
		return refuse(Interrupted, v1alpha1.ReasonProgressing, "%v: the change continues when the driver is loaded again", err), true
	case k == classTransient:
		return c.markUnhealthy(err), true
	default:
		return refuse(RolledBack, v1alpha1.ReasonDriverError, "%v", err), true
	}
}

// nameHolders adds the processes that have the GPU open to a refusal that is due to them.
func (c *gpuChange) nameHolders(ctx context.Context, v decision) decision {
	if v.gpuInUse && c.engine.OpenBy != nil {
		v.message += "; " + c.engine.OpenBy(ctx, c.gpu.UUID)
	}
	return v
}

// markUnhealthy suspends writes to the GPU.
func (c *gpuChange) markUnhealthy(err error) decision {
	v := refuse(Unhealthy, v1alpha1.ReasonDriverError, "%v: the agent writes nothing to it for %v", err, unhealthyBackoff)
	c.engine.markUnhealthy(c.gpu.UUID, v.message)
	return v
}

// reconnect connects again to a driver that was reloaded.
func (e *Engine) reconnect(err error) {
	if errors.Is(err, nvml.ErrUninitialized) {
		_ = e.runDriverCall("", e.Library.Init) // The next call returns the error.
	}
}

// isFinal reports whether the change is over, so that it is rolled back. Otherwise a later call
// continues it.
func (s State) isFinal() bool {
	switch s {
	case Lost, Unhealthy, JournalFailed, Interrupted, Denied:
		return false
	default:
		return true
	}
}
