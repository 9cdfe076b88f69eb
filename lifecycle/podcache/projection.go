// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Projection keeps a value for each GPU pod that it selects, with the fields that only its
// consumers need. It is safe for concurrent use.
type Projection[T any] struct {
	parse func(*corev1.Pod) (T, bool)

	mutex    sync.Mutex
	values   map[podKey]T
	onChange []func()
}

// NewProjection adds a projection to a Store that is not started yet. parse selects a pod
// and returns its value; it must not modify the pod.
func NewProjection[T any](s *Store, parse func(*corev1.Pod) (T, bool)) *Projection[T] {
	p := &Projection[T]{parse: parse, values: map[podKey]T{}}
	s.projections = append(s.projections, p)
	return p
}

// OnChange adds a function to call after an event of a selected pod, or of one that was
// selected before. It must not block.
func (p *Projection[T]) OnChange(call func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.onChange = append(p.onChange, call)
}

// Values returns the values of all selected pods, in no order. They are shared.
func (p *Projection[T]) Values() []T {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.Collect(maps.Values(p.values))
}

// projection is a Projection of any type.
type projection interface {
	// project returns the value of a pod, or nil if it is not selected.
	project(pod *corev1.Pod) any
	// set stores the value of a pod; nil removes it.
	set(key podKey, value any)
}

func (p *Projection[T]) project(pod *corev1.Pod) any {
	if value, selected := p.parse(pod); selected {
		return value
	}
	return nil
}

func (p *Projection[T]) set(key podKey, value any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	_, selected := p.values[key]
	if v, ok := value.(T); ok {
		p.values[key], selected = v, true
	} else {
		delete(p.values, key)
	}
	if selected {
		for _, call := range p.onChange {
			call()
		}
	}
}

// project returns the pod's value in each projection, or nil if no projection selects it.
func (s *Store) project(pod *corev1.Pod) (values []any) {
	for i, p := range s.projections {
		if value := p.project(pod); value != nil {
			if values == nil {
				values = make([]any, len(s.projections))
			}
			values[i] = value
		}
	}
	return values
}

// setValues stores the result of project; nil removes the pod from all projections.
func (s *Store) setValues(key podKey, values []any) {
	for i, p := range s.projections {
		if values == nil {
			p.set(key, nil)
		} else {
			p.set(key, values[i])
		}
	}
}
