// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"slices"
	"strings"

	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/filled"
	"sluice.dev/policies/merge/podschema"
)

// removal is one path of which every match is taken out.
type removal struct {
	policies []string
	steps    []step
	text     string // canonical: what tells it from others
}

// removals adds a policy's to those of all, equal ones once, sorted.
func (b *builder) removals(all []removal, paths []intent.Path) []removal {
	for _, path := range paths {
		steps, ok := b.read("remove", path)
		if !ok || !b.removable(path, steps) {
			continue
		}
		made := removal{[]string{b.policy}, steps, canonical(path)}
		at, found := slices.BinarySearchFunc(all, made, func(a, b removal) int { return cmp.Compare(a.text, b.text) })
		if found {
			all[at].policies = with(all[at].policies, b.policy)
		} else {
			all = slices.Insert(all, at, made)
		}
	}
	return all
}

// removable refuses what would never be done with, or would leave an element that
// nobody can name.
func (b *builder) removable(path intent.Path, steps []step) bool {
	last, before := steps[len(steps)-1], steps[len(steps)-2]
	switch {
	case last.list != nil && filled.ContainerList(last.field) && last.name == first:
		b.intent(b.policy, written("remove", path), "would take out one main container after another: name the container")
	case last.list == nil && before.list != nil && before.list.IsKey(last.name):
		b.intent(b.policy, written("remove", path), "tells the elements of the list apart: remove the element")
	default:
		return true
	}
	return false
}

// stage is when removals are done. What matches later was written by a policy, or
// came to match by what one wrote.
type stage uint8

const (
	atFirst stage = iota
	afterOverrides
	afterDefaults
	afterAppends
)

// takeOut does all removals, until none finds anything. It tells whether one did.
func (r *run) takeOut(s stage) bool {
	found := false
	for again := true; again; {
		again = false
		for i := range r.plan.remove {
			if r.err() != nil {
				return found
			}
			t := taker{run: r, stage: s, removal: &r.plan.remove[i]}
			out, changed := t.take(nil, r.plan.root.typ, r.object, t.steps, filled.Place{Object: r.object}, spot{node: r.plan.root})
			if changed {
				r.object, _ = out.(map[string]any)
				found, again = true, true
			}
		}
	}
	return found
}

// taker does one removal.
type taker struct {
	*run
	*removal
	stage stage
	trail []string // segments of the path to where it is
	// silent tells that what was taken out last was only a default.
	silent bool
}

func (t *taker) path() string { return strings.TrimPrefix(strings.Join(t.trail, ""), ".") }

func (t *taker) enter(step string, form form) { t.trail = append(t.trail, segment(step, form)) }
func (t *taker) leave()                       { t.trail = t.trail[:len(t.trail)-1] }

// spot is what the plan says of where a taker is: the node of that very part, if
// there is one, and the leaf that it is in, if it is in one.
type spot struct{ node, whole *node }

// below is the spot of a part.
func (s spot) below(step string, form form, f *podschema.Field) spot {
	if s.node == nil {
		return spot{nil, s.whole}
	}
	if s.node.leaf() {
		return spot{nil, s.node}
	}
	if form == isField && f.Union {
		return spot{nil, s.node.kid("", isUnion)}
	}
	return spot{s.node.kid(step, form), s.whole}
}
