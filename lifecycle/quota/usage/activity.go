// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

const (
	// activityRetention is how long the activity of a pod is kept, in machine time. Usage is accounted
	// within an hour, and without an API server later.
	activityRetention = 3 * time.Hour
	// maxSpans limits the spans of a pod. A pod that changes more often loses the oldest.
	maxSpans = 512
)

// activityTracker records when pods used their GPUs, as the agents of their nodes sampled it. It keeps
// nothing across restarts: the time before is unmeasured then.
type activityTracker struct {
	mu       sync.Mutex
	pods     map[types.UID]*podActivity
	prunedAt time.Time
}

// podActivity is the measured activity of one pod.
type podActivity struct {
	// sampledAt is the last sample; known reports whether it measured the pod, and active whether the pod
	// was active then.
	sampledAt     time.Time
	known, active bool
	// spans are in ascending order and do not overlap.
	spans []activitySpan
}

// activitySpan is a time with the same activity, in seconds of machine time.
type activitySpan struct {
	from, to int64
	active   bool
}

// handleGPUNode records the sample of a node. It requests no reconcile.
func (t *activityTracker) handleGPUNode(_ context.Context, object client.Object) []reconcile.Request {
	if node, ok := object.(*v1alpha1.GPUNode); ok {
		t.observe(&node.Status)
	}
	return nil
}

// observe records a sample: a pod was active from the former sample to its last use, and idle since. Time
// without samples, or for which the use is unknown, is not measured.
func (t *activityTracker) observe(s *v1alpha1.GPUNodeStatus) {
	if s.SampledAt == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods == nil {
		t.pods = map[types.UID]*podActivity{}
	}
	sampled := s.SampledAt.Time
	for i := range s.Pods {
		use := &s.Pods[i]
		p := t.pods[use.UID]
		if p == nil {
			p = &podActivity{}
			t.pods[use.UID] = p
		}
		if !sampled.After(p.sampledAt) {
			continue
		}
		if use.LastActive != nil && p.known && sampled.Sub(p.sampledAt) <= inventory.SampleMaxAge {
			last := laterTime(p.sampledAt, earlierTime(use.LastActive.Time, sampled))
			p.add(activitySpan{p.sampledAt.Unix(), last.Unix(), true})
			p.add(activitySpan{last.Unix(), sampled.Unix(), false})
		}
		p.sampledAt, p.known = sampled, use.LastActive != nil
		p.active = p.known && !use.LastActive.Time.Before(sampled)
	}
	if sampled.Sub(t.prunedAt) > activityRetention/10 {
		t.prune(sampled.Add(-activityRetention))
		t.prunedAt = sampled
	}
}

// add adds a span, which begins at the end of the last one or later.
func (p *podActivity) add(span activitySpan) {
	if span.from >= span.to {
		return
	}
	if last := len(p.spans) - 1; last >= 0 && p.spans[last].to == span.from && p.spans[last].active == span.active {
		p.spans[last].to = span.to
		return
	}
	if p.spans = append(p.spans, span); len(p.spans) > maxSpans {
		p.spans = append(p.spans[:0], p.spans[1:]...)
	}
}

// prune forgets what lies before a time.
func (t *activityTracker) prune(before time.Time) {
	oldest := before.Unix()
	for uid, p := range t.pods {
		if p.sampledAt.Before(before) {
			delete(t.pods, uid)
			continue
		}
		for len(p.spans) > 0 && p.spans[0].to < oldest {
			p.spans = p.spans[1:]
		}
	}
}

// ActivityOf returns how long a pod was active and idle between two instants of policy time, in whole
// seconds. The rest was not measured.
func (r *Reconciler) ActivityOf(pod types.UID, from, to time.Time) (active, idle time.Duration) {
	return r.activity.during(pod, from, to, r.Clock.FromReal)
}

// during returns how long a pod was active and idle between two instants of policy time, in whole seconds. The
// rest was not measured. The time since the last sample counts like that sample, for as long as
// a node may be without one.
func (t *activityTracker) during(pod types.UID, from, to time.Time, toPolicyTime func(time.Time) time.Time) (active, idle time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count := func(span activitySpan) {
		length := earlierTime(toPolicyTime(time.Unix(span.to, 0)), to).Sub(laterTime(toPolicyTime(time.Unix(span.from, 0)), from))
		switch {
		case length <= 0:
		case span.active:
			active += length
		default:
			idle += length
		}
	}
	if p := t.pods[pod]; p != nil {
		for _, span := range p.spans {
			count(span)
		}
		if p.known {
			count(activitySpan{p.sampledAt.Unix(), p.sampledAt.Add(inventory.SampleMaxAge).Unix(), p.active})
		}
	}
	return active.Truncate(time.Second), idle.Truncate(time.Second)
}
