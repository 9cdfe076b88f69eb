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
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
)

// podTracker notes what runs since when, by namespace, at the moment it is seen.
type podTracker struct {
	mu         sync.Mutex // guards all below, and of stretches what is the meter's
	namespaces map[string]*namespaceUsage
}

// namespaceUsage is what is known of a namespace's use.
type namespaceUsage struct {
	// running are the stretches that last, by the pod's UID; ended are those that do
	// not, and are not in the records yet; cut are those among them after which the
	// pod ran on. paused are the pods that stopped running and did not go. All are
	// the meter's.
	running     map[types.UID]*usageInterval
	ended       []*usageInterval
	continued   map[types.UID][]*usageInterval
	interrupted map[types.UID]bool

	*recordState
}

// handleChange notes a change. It is called in the order of changes, and wakes the
// controller for the namespace if the change is one of what runs.
func (m *podTracker) handleChange(c podcache.Change) []reconcile.Request {
	now := policytime.MachineNow()
	m.mu.Lock()
	defer m.mu.Unlock()
	pod := c.Pod()
	noted := false
	if c.After != nil && c.After.Running && c.After.Milli > 0 {
		noted = m.usageOf(pod.Namespace).observeRunning(c.After, now)
	} else if a := m.namespaces[pod.Namespace]; a != nil {
		noted = a.observeStopped(pod.UID, now, c.After == nil)
	}
	if !noted {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pod.Namespace}}}
}

// usageOf is the account of a namespace, a new one if need be.
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

// observeRunning notes that a pod runs, and tells whether that is news.
func (a *namespaceUsage) observeRunning(pod *podcache.Pod, now time.Time) bool {
	from := pod.EffectiveStart()
	by := earlierTime(from.Add(time.Second-time.Nanosecond), now)
	if a.interrupted[pod.UID] {
		from, by = now, now
		delete(a.interrupted, pod.UID)
	}
	if before := a.running[pod.UID]; before != nil {
		if before.matches(pod) {
			return false
		}
		before.to, from, by = now, now, now
		a.ended = append(a.ended, before)
		a.continued[pod.UID] = append(a.continued[pod.UID], before)
	}
	a.running[pod.UID] = newUsageInterval(pod, from, by)
	return true
}

// observeStopped notes that a pod does not run any more, and tells whether that is news.
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
	s.to = now
	a.ended = append(a.ended, s)
	s.podStopped = true
	for _, earlier := range a.continued[pod] {
		earlier.podStopped = true
	}
	delete(a.continued, pod)
	return true
}

// splitIntervals ends what lasts, for whom it was, and begins it again from now on, for
// whoever comes.
func (a *namespaceUsage) splitIntervals(now time.Time) {
	for pod, s := range a.running {
		next := *s
		next.from, next.startedBy, next.accountedUntil, next.clock, next.user = now, now, time.Time{}, "", ""
		a.running[pod] = &next
		s.to = now
		a.ended = append(a.ended, s)
	}
	for _, s := range a.ended {
		s.podStopped = true
	}
	clear(a.continued)
}

// observedInterval is a stretch as it was when it was looked at.
type observedInterval struct {
	*usageInterval
	to         time.Time
	podStopped bool
}

// snapshot is what ran, as it is now; nil for a namespace of which nothing is known.
func (m *podTracker) snapshot(namespace string) (a *namespaceUsage, all []observedInterval) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a = m.namespaces[namespace]; a == nil {
		return nil, nil
	}
	all = make([]observedInterval, 0, len(a.running)+len(a.ended))
	for _, s := range a.ended {
		all = append(all, observedInterval{s, s.to, s.podStopped})
	}
	for _, s := range a.running {
		all = append(all, observedInterval{usageInterval: s})
	}
	return a, all
}

// dropEnded drops ended stretches that are in the records to their end, or nobody's.
func (m *podTracker) dropEnded(a *namespaceUsage, drop func(*usageInterval) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.ended = slices.DeleteFunc(a.ended, drop)
}

// removeIfIdle forgets a namespace where nothing runs, and tells whether it did.
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

// namespaceNames are the namespaces of which something is known.
func (m *podTracker) namespaceNames() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make([]string, 0, len(m.namespaces))
	for name := range m.namespaces {
		names = append(names, name)
	}
	return names
}

// usageInterval is a time through which a pod ran with the same charge.
type usageInterval struct {
	pod, controller types.UID
	milli           workload.Milli
	labeledType     v1alpha1.WorkloadType
	pool            string
	// creator is who made the pod, where nobody controls it.
	creator string
	// from and by are when it began, and when at the latest, in machine time: what a
	// pod says is cut down to the second.
	from, startedBy time.Time

	// to is when it ended, in machine time; zero while it lasts. gone is whether the
	// pod ended with it, so that nobody will find it running. Both are the meter's.
	to         time.Time
	podStopped bool

	// clock, user and as are whose it is and as what it counts; empty while that is
	// not known.
	clock, user  string
	workloadType v1alpha1.WorkloadType
	// accountedUntil is up to when it is in the records, in policy time; zero for not at all.
	accountedUntil time.Time
}

func newUsageInterval(pod *podcache.Pod, from, by time.Time) *usageInterval {
	s := &usageInterval{
		pod: pod.UID, controller: pod.Controller.UID,
		milli: pod.Milli, labeledType: pod.WorkloadType, pool: pod.Pool, from: from, startedBy: by,
	}
	if s.controller == "" {
		s.creator = pod.CreatedBy
	}
	return s
}

// matches tells whether the pod still runs as it did.
func (s *usageInterval) matches(pod *podcache.Pod) bool {
	return s.milli == pod.Milli && s.labeledType == pod.WorkloadType && s.pool == pod.Pool
}

// podIdentity is as much of the pod as its workload is found by.
func (s *usageInterval) podIdentity(namespace string) *podcache.Pod {
	return &podcache.Pod{Namespace: namespace, UID: s.pod, Controller: podcache.Owner{UID: s.controller}}
}
