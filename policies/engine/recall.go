// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/policies/intent"
)

// memory keeps a policy's latest answers to one question by the parts of the input that it read.
//
// A policy has no clock, no chance and no data: the same parts give the same
// answer. Which parts it reads is known when it is compiled. So the pods of one
// controller, which differ in their names, are asked about once.
type memory struct {
	// limit is how many answers a generation has; at most twice as many are kept.
	limit int

	mu         sync.Mutex
	young, old map[string]*answer
}

// recallable tells whether a module's answers to a question may be kept: those
// that depend on the moment are not, and neither are those of rules that put
// something else in the place of input, whose reads are not what they seem.
func (m *module) recallable(asked question) bool {
	moment := asked == aboutObject && m.momentary != 0
	return m.queries[asked] != nil && !moment && !m.reads[asked].replaced && len(m.reads[asked].paths) <= 32
}

// recall returns the answer that was remembered by a key.
func (m *memory) recall(key []byte) (answer, bool) {
	m.mu.Lock()
	found, ok := m.young[string(key)]
	if !ok {
		if found, ok = m.old[string(key)]; ok {
			m.keep(string(key), found)
		}
	}
	m.mu.Unlock()
	if !ok {
		return answer{}, false
	}
	return found.clone(), true
}

// remember keeps an answer.
func (m *memory) remember(key []byte, given answer) {
	kept := given.clone()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(string(key), &kept)
}

func (m *memory) keep(key string, given *answer) {
	if m.young == nil || len(m.young) >= m.limit {
		m.young, m.old = make(map[string]*answer), m.young
	}
	m.young[key] = given
}

// clone returns an answer that shares nothing that may be changed: whoever
// applies an intent may work on its values.
func (a *answer) clone() answer {
	c := answer{
		workload:  a.workload,
		intent:    a.intent,
		deny:      slices.Clone(a.deny),
		violation: slices.Clone(a.violation),
		warn:      slices.Clone(a.warn),
	}
	c.intent.Defaults = cloneObject(a.intent.Defaults)
	c.intent.Overrides = cloneObject(a.intent.Overrides)
	c.intent.Nodes = slices.Clone(a.intent.Nodes)
	for i := range c.intent.Nodes {
		c.intent.Nodes[i].Values = slices.Clone(c.intent.Nodes[i].Values)
	}
	c.intent.Append = slices.Clone(a.intent.Append)
	for i, addition := range c.intent.Append {
		c.intent.Append[i] = intent.Addition{Path: clonePath(addition.Path), Value: runtime.DeepCopyJSONValue(addition.Value)}
	}
	c.intent.Remove = slices.Clone(a.intent.Remove)
	for i, path := range c.intent.Remove {
		c.intent.Remove[i] = clonePath(path)
	}
	return c
}

func cloneObject(object map[string]any) map[string]any {
	if object == nil {
		return nil
	}
	return runtime.DeepCopyJSON(object)
}

func clonePath(path intent.Path) intent.Path {
	return runtime.DeepCopyJSONValue([]any(path)).([]any)
}
