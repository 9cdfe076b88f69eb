// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/lifecycle/podcache"
)

// podTracker records intervals of bound pods by namespace, as they are observed.
type podTracker struct {
	// mu guards all fields below and the fields of intervals that are marked as the
	// tracker's.
	mu         sync.Mutex // guards all fields below and the fields of intervals that are the tracker's
	namespaces map[string]*namespaceUsage
}

// namespaceUsage is the usage of a namespace.
type namespaceUsage struct {
	// running are the open intervals by the pod's UID. ended are the closed ones that no
	// record includes yet. continued are those of them after which the pod ran on with
	// another charge. interrupted are pods that hold no GPU any more and still exist. All are
	// the tracker's.
	running     map[types.UID]*usageInterval
	ended       []*usageInterval
	continued   map[types.UID][]*usageInterval
	interrupted map[types.UID]bool

	// series is the project whose series the counter of usage has, or empty.
	series string

	*recordState
}

// handleChange records a change of a pod. It is called in the order of changes and requests a
// reconcile if an interval starts or ends.
func (m *podTracker) handleChange(c podcache.Change) []reconcile.Request {
	now := policytime.MachineNow()
	m.mu.Lock()
	defer m.mu.Unlock()
	pod := c.Pod()
	changed := false
	if c.After != nil && c.After.IsBound() && c.After.Milli > 0 {
		changed = m.usageOf(pod.Namespace).observeBound(c.After, now)
	} else if a := m.namespaces[pod.Namespace]; a != nil {
		changed = a.observeStopped(pod.UID, now, c.After == nil)
	}
	if !changed {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pod.Namespace}}}
}

// usageOf returns the usage of a namespace and creates it if necessary.
func (m *podTracker) usageOf(namespace string) *namespaceUsage {
	if m.namespaces == nil {
		m.namespaces = map[string]*namespaceUsage{}
	}
	a := m.namespaces[namespace]
	if a == nil {
		a = &namespaceUsage{
			running: map[types.UID]*usageInterval{}, continued: map[types.UID][]*usageInterval{}, interrupted: map[types.UID]bool{},
			recordState: newRecordState(),
		}
		m.namespaces[namespace] = a
	}
	return a
}

// observeBound records a bound pod and reports whether an interval starts. The pod holds its
// GPUs although its containers may not have started.
func (a *namespaceUsage) observeBound(pod *podcache.Pod, now time.Time) bool {
	from := pod.BoundAt
	by := earlierTime(from.Add(time.Second-time.Nanosecond), now)
	if a.interrupted[pod.UID] {
		from, by = now, now
		delete(a.interrupted, pod.UID)
	}
	if before := a.running[pod.UID]; before != nil {
		if before.matches(pod) {
			before.node, before.graceEndsAt = pod.Node, instantOf(pod.GraceEndsAt)
			return false
		}
		before.to, from, by = instantOf(now), now, now
		a.ended = append(a.ended, before)
		a.continued[pod.UID] = append(a.continued[pod.UID], before)
	}
	a.running[pod.UID] = newUsageInterval(pod, from, by)
	return true
}

// observeStopped records a stopped pod and reports whether an interval ends.
func (a *namespaceUsage) observeStopped(pod types.UID, now time.Time, gone bool) bool {
	if gone {
		delete(a.interrupted, pod)
	}
	s := a.running[pod]
	if s == nil {
		return false
	}
	if !gone {
		a.interrupted[pod] = true
	}
	delete(a.running, pod)
	s.to = instantOf(now)
	a.ended = append(a.ended, s)
	s.podStopped = true
	for _, earlier := range a.continued[pod] {
		earlier.podStopped = true
	}
	delete(a.continued, pod)
	return true
}

// terminatedIntervals returns the open intervals of pods whose grace period is over, with the nodes
// of these pods.
func (m *podTracker) terminatedIntervals(a *namespaceUsage, now time.Time) map[*usageInterval]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	terminated := map[*usageInterval]string{}
	for _, s := range a.running {
		if !s.graceEndsAt.isZero() && s.graceEndsAt.time().Before(now) {
			terminated[s] = s.node
		}
	}
	return terminated
}

// setLost closes an open interval and opens the next one, which is charged unless the pod's node
// is lost. It changes nothing if the interval has been closed.
func (m *podTracker) setLost(a *namespaceUsage, s *usageInterval, lost bool, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.running[s.pod] != s || s.lost == lost {
		return
	}
	next := *s
	next.lost, next.from, next.startedBy, next.accountedUntil = lost, instantOf(at), instantOf(at), 0
	s.to = instantOf(at)
	a.ended = append(a.ended, s)
	a.continued[s.pod] = append(a.continued[s.pod], s)
	a.running[s.pod] = &next
}

// splitIntervals closes all open intervals for the previous owner and opens new ones for the
// next.
func (a *namespaceUsage) splitIntervals(now time.Time) {
	for pod, s := range a.running {
		next := *s
		next.from, next.startedBy, next.accountedUntil, next.attribution = instantOf(now), instantOf(now), 0, unattributed
		a.running[pod] = &next
		s.to = instantOf(now)
		a.ended = append(a.ended, s)
	}
	for _, s := range a.ended {
		s.podStopped = true
	}
	clear(a.continued)
}

// observedInterval is an interval with its end at the time of the snapshot.
type observedInterval struct {
	*usageInterval
	to         time.Time
	podStopped bool
}

// snapshot returns all intervals of a namespace, or nil for an unknown namespace.
func (m *podTracker) snapshot(namespace string) (a *namespaceUsage, all []observedInterval) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a = m.namespaces[namespace]; a == nil {
		return nil, nil
	}
	all = make([]observedInterval, 0, len(a.running)+len(a.ended))
	for _, s := range a.ended {
		all = append(all, observedInterval{s, s.to.time(), s.podStopped})
	}
	for _, s := range a.running {
		all = append(all, observedInterval{usageInterval: s})
	}
	return a, all
}

// dropEnded removes the ended intervals for which drop returns true.
func (m *podTracker) dropEnded(a *namespaceUsage, drop func(*usageInterval) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.ended = slices.DeleteFunc(a.ended, drop)
}

// removeIfIdle removes a namespace without intervals and reports whether it did.
func (m *podTracker) removeIfIdle(namespace string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.namespaces[namespace]
	if a == nil || len(a.running)+len(a.ended)+len(a.interrupted) > 0 {
		return a == nil
	}
	delete(m.namespaces, namespace)
	return true
}

// namespaceNames returns the known namespaces.
func (m *podTracker) namespaceNames() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make([]string, 0, len(m.namespaces))
	for name := range m.namespaces {
		names = append(names, name)
	}
	return names
}
