// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/lifecycle/gpupods"
)

// meter notes what runs since when, by namespace, at the moment it is seen.
type meter struct {
	mu         sync.Mutex // guards all below, and of stretches what is the meter's
	namespaces map[string]*account
}

// account is what is known of a namespace's use.
type account struct {
	// running are the stretches that last, by the pod's UID; ended are those that do
	// not, and are not in the records yet; cut are those among them after which the
	// pod ran on. paused are the pods that stopped running and did not go. All are
	// the meter's.
	running map[types.UID]*stretch
	ended   []*stretch
	cut     map[types.UID][]*stretch
	paused  map[types.UID]bool

	*book
}

// changed notes a change. It is called in the order of changes, and wakes the
// controller for the namespace if the change is one of what runs.
func (m *meter) changed(c gpupods.Change) []reconcile.Request {
	now := clock.MachineNow()
	m.mu.Lock()
	defer m.mu.Unlock()
	pod := c.Pod()
	noted := false
	if c.After != nil && c.After.Running && c.After.Milli > 0 {
		noted = m.of(pod.Namespace).run(c.After, now)
	} else if a := m.namespaces[pod.Namespace]; a != nil {
		noted = a.end(pod.UID, now, c.After == nil)
	}
	if !noted {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pod.Namespace}}}
}

// of is the account of a namespace, a new one if need be.
func (m *meter) of(namespace string) *account {
	if m.namespaces == nil {
		m.namespaces = map[string]*account{}
	}
	a := m.namespaces[namespace]
	if a == nil {
		a = &account{
			running: map[types.UID]*stretch{}, cut: map[types.UID][]*stretch{}, paused: map[types.UID]bool{},
			book: newBook(),
		}
		m.namespaces[namespace] = a
	}
	return a
}

// run notes that a pod runs, and tells whether that is news.
func (a *account) run(pod *gpupods.Pod, now time.Time) bool {
	from := pod.Began()
	by := earlier(from.Add(time.Second-time.Nanosecond), now)
	if a.paused[pod.UID] {
		from, by = now, now
		delete(a.paused, pod.UID)
	}
	if before := a.running[pod.UID]; before != nil {
		if before.same(pod) {
			return false
		}
		before.to, from, by = now, now, now
		a.ended = append(a.ended, before)
		a.cut[pod.UID] = append(a.cut[pod.UID], before)
	}
	a.running[pod.UID] = newStretch(pod, from, by)
	return true
}

// end notes that a pod does not run any more, and tells whether that is news.
func (a *account) end(pod types.UID, now time.Time, gone bool) bool {
	if gone {
		delete(a.paused, pod)
	}
	s := a.running[pod]
	if s == nil {
		return false
	}
	if !gone {
		a.paused[pod] = true
	}
	delete(a.running, pod)
	s.to = now
	a.ended = append(a.ended, s)
	s.gone = true
	for _, earlier := range a.cut[pod] {
		earlier.gone = true
	}
	delete(a.cut, pod)
	return true
}

// release ends what lasts, for whom it was, and begins it again from now on, for
// whoever comes.
func (a *account) release(now time.Time) {
	for pod, s := range a.running {
		next := *s
		next.from, next.by, next.done, next.clock, next.user = now, now, time.Time{}, "", ""
		a.running[pod] = &next
		s.to = now
		a.ended = append(a.ended, s)
	}
	for _, s := range a.ended {
		s.gone = true
	}
	clear(a.cut)
}

// seen is a stretch as it was when it was looked at.
type seen struct {
	*stretch
	to   time.Time
	gone bool
}

// look is what ran, as it is now; nil for a namespace of which nothing is known.
func (m *meter) look(namespace string) (a *account, all []seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a = m.namespaces[namespace]; a == nil {
		return nil, nil
	}
	all = make([]seen, 0, len(a.running)+len(a.ended))
	for _, s := range a.ended {
		all = append(all, seen{s, s.to, s.gone})
	}
	for _, s := range a.running {
		all = append(all, seen{stretch: s})
	}
	return a, all
}

// forget drops ended stretches that are in the records to their end, or nobody's.
func (m *meter) forget(a *account, drop func(*stretch) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.ended = slices.DeleteFunc(a.ended, drop)
}

// close forgets a namespace where nothing runs, and tells whether it did.
func (m *meter) close(namespace string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.namespaces[namespace]
	if a == nil || len(a.running)+len(a.ended)+len(a.paused) > 0 {
		return a == nil
	}
	delete(m.namespaces, namespace)
	return true
}

// names are the namespaces of which something is known.
func (m *meter) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make([]string, 0, len(m.namespaces))
	for name := range m.namespaces {
		names = append(names, name)
	}
	return names
}
