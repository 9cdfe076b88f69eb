// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ending

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Decide is what follows, at an instant, from what was recorded, what is seen and
// what holds. The same question has the same answer; asked again with its own
// answer as the record, it warns of nothing twice.
func Decide(now time.Time, was v1alpha1.WorkloadClockStatus, seen Seen, terms Terms) Decision {
	d := &deciding{now: whole(now), was: &was, seen: seen, terms: terms}
	was.DeepCopyInto(&d.Status)
	d.extend()
	d.release()
	d.pause()
	d.reset()
	d.count()
	d.reset()
	d.limit()
	d.idle()
	d.announce()
	d.stop()
	d.dryRun()
	d.state()
	return d.Decision
}

// deciding is a decision on its way. Its steps are in the order in which Decide
// takes them.
type deciding struct {
	Decision
	now   time.Time
	was   *v1alpha1.WorkloadClockStatus
	seen  Seen
	terms Terms
	// began tells that an interval was opened by this decision.
	began bool
	// idleFor is how long the workload has been idle, as far as is known.
	idleFor time.Duration
}

// ran is the accumulated running time, the open interval included.
func (d *deciding) ran() time.Duration {
	ran := time.Duration(d.Status.AccumulatedSeconds) * time.Second
	if since := d.Status.RunningSince; since != nil {
		ran += max(0, d.now.Sub(since.Time))
	}
	return ran
}

// at has the decision asked again at an instant, unless that is earlier anyway.
func (d *deciding) at(t time.Time) {
	if t.After(d.now) && (d.Next.IsZero() || t.Before(d.Next)) {
		d.Next = t
	}
}

// state names what was decided.
func (d *deciding) state() {
	switch {
	case d.Status.Stopped != nil:
		d.Status.State = v1alpha1.ClockStateStopped
	case d.Status.RunningSince != nil:
		d.Status.State = v1alpha1.ClockStateRunning
	case d.Status.AccumulatedSeconds > 0 || d.Status.PausedSince != nil:
		d.Status.State = v1alpha1.ClockStatePaused
	default:
		d.Status.State = v1alpha1.ClockStateWaiting
	}
}

// whole is an instant as it can be recorded.
func whole(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

func stamp(t time.Time) *metav1.Time { return &metav1.Time{Time: whole(t)} }

func seconds(length time.Duration) int64 { return int64(length / time.Second) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
