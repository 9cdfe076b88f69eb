// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"sluice.dev/api/policytime"
)

// maxWaiting is the number of requests of one project that may wait for a slot at a time.
const maxWaiting = 64

// activePeriod is the time for which a project counts as active after its last request, in machine time.
const activePeriod = 10 * time.Second

// errTooManyRequests: the project has too many requests in flight.
var errTooManyRequests = fmt.Errorf("%d requests of this project are waiting already", maxWaiting)

// Slots limits how many objects are evaluated at a time: with more than there are processors each
// evaluation becomes slower. Projects share the slots fairly, however many requests one of them
// makes: waiting projects take turns, and while several are active, none takes the last slot in
// addition to others.
type Slots struct {
	mu      sync.Mutex
	total   int
	free    int
	held    map[string]int
	waiting map[string][]chan struct{}
	// turns are the waiting projects, in the order in which they get a slot.
	turns []string
	// active is the time of each project's last request.
	active map[string]time.Time
}

// NewSlots returns n slots.
func NewSlots(n int) *Slots {
	return &Slots{
		total: n, free: n,
		held: map[string]int{}, waiting: map[string][]chan struct{}{}, active: map[string]time.Time{},
	}
}

// Acquire waits for a slot for a project, until ctx ends. The caller calls release once.
func (s *Slots) Acquire(ctx context.Context, project string) (release func(), err error) {
	release = sync.OnceFunc(func() { s.release(project) })
	granted, err := s.request(project)
	if err != nil || granted == nil {
		return release, err
	}
	select {
	case <-granted:
		return release, nil
	case <-ctx.Done():
	}
	if !s.cancel(project, granted) {
		release() // it was granted just now
	}
	return nil, errors.Join(errNoSlot, ctx.Err())
}

var errNoSlot = errors.New("no slot became free")

// request takes a slot, or returns the channel that is closed when the project has one.
func (s *Slots) request(project string) (chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteActive(project)
	if len(s.turns) == 0 && s.available(project) {
		s.take(project)
		return nil, nil
	}
	if len(s.waiting[project]) >= maxWaiting {
		return nil, errTooManyRequests
	}
	granted := make(chan struct{})
	if len(s.waiting[project]) == 0 {
		s.turns = append(s.turns, project)
	}
	s.waiting[project] = append(s.waiting[project], granted)
	s.grant()
	return granted, nil
}

// noteActive notes a request of a project, and forgets the projects without requests.
func (s *Slots) noteActive(project string) {
	now := policytime.MachineNow()
	if _, known := s.active[project]; !known {
		for other, last := range s.active {
			if now.Sub(last) > activePeriod {
				delete(s.active, other)
			}
		}
	}
	s.active[project] = now
}

// available reports whether a project can take a slot. The last free one is for projects that
// have none, while several are active.
func (s *Slots) available(project string) bool {
	switch {
	case s.free == 0:
		return false
	case s.free > 1, s.total == 1, s.held[project] == 0:
		return true
	}
	for other, last := range s.active {
		if other != project && policytime.MachineNow().Sub(last) <= activePeriod {
			return false
		}
	}
	return true
}

func (s *Slots) take(project string) {
	s.free--
	s.held[project]++
}

// grant gives the free slots to the waiting projects in turn.
func (s *Slots) grant() {
	for {
		next := slices.IndexFunc(s.turns, s.available)
		if next < 0 {
			return
		}
		project := s.turns[next]
		s.turns = slices.Delete(s.turns, next, next+1)
		queue := s.waiting[project]
		close(queue[0])
		s.take(project)
		s.setWaiting(project, queue[1:])
		if len(queue) > 1 {
			s.turns = append(s.turns, project)
		}
	}
}

func (s *Slots) setWaiting(project string, queue []chan struct{}) {
	if len(queue) == 0 {
		delete(s.waiting, project)
		return
	}
	s.waiting[project] = queue
}

func (s *Slots) release(project string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.held[project]--; s.held[project] == 0 {
		delete(s.held, project)
	}
	s.grant()
}

// isCrowdedBy reports whether a project causes the load: it has all slots or more requests in flight than there are, and no other
// project has more.
func (s *Slots) isCrowdedBy(project string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := func(project string) int { return s.held[project] + len(s.waiting[project]) }
	most := 0
	for other := range s.active {
		most = max(most, requests(other))
	}
	return requests(project) == most && most >= s.total
}

// cancel removes a request that waits. It returns false if the request has a slot.
func (s *Slots) cancel(project string, granted chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.waiting[project]
	at := slices.Index(queue, granted)
	if at < 0 {
		return false
	}
	s.setWaiting(project, slices.Delete(slices.Clone(queue), at, at+1))
	if len(queue) == 1 {
		s.turns = slices.DeleteFunc(s.turns, func(other string) bool { return other == project })
	}
	return true
}
