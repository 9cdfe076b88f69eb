// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"errors"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
)

const freeSpace = "make room on the disk of the agent's directory, or make it writable; nothing is changed before"

var (
	// errJournal marks errors of the journal.
	errJournal = errors.New("the journal cannot be written")
	// errHeld marks that somebody took what was about to be changed.
	errHeld = errors.New("in use")
	// errMoved marks that somebody else has changed the GPU since it was looked at.
	errMoved = errors.New("somebody else has changed it just now")
	// errUnclear marks a look that failed for a reason that may pass.
	errUnclear = errors.New("the GPU cannot be read")
)

// kind is what an error means for what was being done.
type kind uint8

const (
	// refused: asking again would not help.
	refused kind = iota
	// passing: it may go away; the effect is unknown.
	passing
	// taken: there was no room, or something else was short.
	taken
	// busy: somebody has it, the driver says.
	busy
	// moved: the picture is old; look again.
	moved
	// denied: the agent lacks the permission.
	denied
	// lost: the GPU cannot be reached.
	lost
	// hung: the driver does not answer for it.
	hung
	// unreset: the GPU has to be reset first.
	unreset
)

var kinds = map[kind][]error{
	passing: {nvml.ErrNotReady, nvml.ErrInvalidState, nvml.ErrUnknown, nvml.ErrUninitialized, errUnclear},
	taken:   {nvml.ErrInsufficientResources},
	busy:    {nvml.ErrInUse},
	moved:   {errHeld, errMoved},
	denied:  {nvml.ErrNoPermission},
	lost:    {nvml.ErrGPULost},
	hung:    {nvml.ErrTimeout, errStuck},
	unreset: {nvml.ErrResetRequired},
}

func kindOf(err error) kind {
	for k := passing; k <= unreset; k++ {
		for _, is := range kinds[k] {
			if errors.Is(err, is) {
				return k
			}
		}
	}
	return refused
}

// unclear tells whether a call that failed so may have had its effect all the same.
func (k kind) unclear() bool { return k == passing || k == lost || k == hung }

// tries counts attempts.
type tries struct{ passing, taken, busy, moved int }

// How often one tries again, and how long one waits before, which doubles.
const (
	maxPassing, pauseForPassing = 3, 100 * time.Millisecond
	maxTaken, pauseForRoom      = 1, 100 * time.Millisecond
	maxBusy, pauseForBusy       = 4, 250 * time.Millisecond
	maxMoved                    = 4
)

// judge says whether a change that met the error goes on, after a pause, or what is to
// be said.
func (c *change) judge(ctx context.Context, err error) (verdict, bool) {
	again := func(count *int, limit int, pause time.Duration) bool {
		if *count++; *count > limit {
			return false
		}
		c.e.pause(ctx, pause<<(*count-1))
		return true
	}
	switch k := kindOf(err); {
	case err == nil:
		return verdict{}, false
	case ctx.Err() != nil:
		return refuse(Interrupted, v1alpha1.ReasonProgressing, "the agent was told to stop"), true
	case errors.Is(err, errJournal):
		return refuse(JournalFailed, v1alpha1.ReasonJournalFailed, "%v; %s", err, freeSpace), true
	case k == denied:
		return refuse(Denied, v1alpha1.ConditionNoPermission, "%v: the agent has to run privileged, with /proc/driver/nvidia/capabilities/mig/config", err), true
	case k == lost:
		return refuse(Lost, v1alpha1.ConditionGPULost, "%v: reset the GPU or restart the node; nothing is written to it", err), true
	case k == unreset:
		return needsReset(err.Error()), true
	case k == hung:
		return c.unhealthy(err), true
	case k == moved && again(&c.tries.moved, maxMoved, 0):
		return verdict{}, false
	case k == busy && again(&c.tries.busy, maxBusy, pauseForBusy):
		return verdict{}, false
	case k == moved || k == busy:
		return refuse(Reclaiming, v1alpha1.ReasonInUse, "%v", err), true
	case k == taken && again(&c.tries.taken, maxTaken, pauseForRoom):
		return verdict{}, false
	case k == passing && again(&c.tries.passing, maxPassing, pauseForPassing):
		c.e.connect(err)
		return verdict{}, false
	case k == passing:
		return c.unhealthy(err), true
	default:
		return refuse(RolledBack, v1alpha1.ReasonDriverError, "%v", err), true
	}
}

// unhealthy keeps writes from the GPU for a while.
func (c *change) unhealthy(err error) verdict {
	v := refuse(Unhealthy, v1alpha1.ReasonDriverError, "%v: nothing is written to it for %v", err, sickFor)
	c.e.sicken(c.gpu.UUID, v.message)
	return v
}

// connect connects to the driver again where it has gone away and come back.
func (e *Engine) connect(err error) {
	if errors.Is(err, nvml.ErrUninitialized) {
		_ = e.do("", e.Library.Init) // the next call tells
	}
}

// final tells whether nothing more can be done about the GPU now, so that what was begun
// is undone; otherwise it is taken up later.
func (s State) final() bool {
	switch s {
	case Lost, Unhealthy, JournalFailed, Interrupted, Denied:
		return false
	default:
		return true
	}
}
