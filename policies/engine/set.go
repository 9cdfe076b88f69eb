// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
)

// Limits bound how long policies may take.
type Limits struct {
	// Evaluation is how long one policy may take; 200 ms where it is 0. A policy is
	// told to stop then, and left behind at twice that.
	Evaluation time.Duration
	// Request is how long all policies of one question may take, where its context
	// ends no sooner; 800 ms where it is 0.
	Request time.Duration
}

func (l Limits) orDefault() Limits {
	if l.Evaluation <= 0 {
		l.Evaluation = 200 * time.Millisecond
	}
	if l.Request <= 0 {
		l.Request = 800 * time.Millisecond
	}
	return l
}

// Set is all policies that are in force together. It never changes: whoever asks
// twice about one object asks the same Set.
type Set struct {
	members []*member
	// pieces are what the policies read of input, each once.
	pieces    []piece
	admission *index
	rendering *index
	digest    string
	options   Options
}

// member is a policy in a set.
type member struct {
	*policy
	// reads are places in the set's pieces, for each question; nil where answers are
	// not remembered.
	reads [questionCount][]int
}

func newSet(policies []*policy, options Options) *Set {
	slices.SortFunc(policies, func(a, b *policy) int { return strings.Compare(a.source.Name, b.source.Name) })
	s := &Set{options: options}
	h := sha256.New()
	places := make(map[string]int)
	for _, p := range policies {
		writePart(h, string(p.digest[:]))
		m := &member{policy: p}
		for _, asked := range []question{aboutObject, forType} {
			if p.module.pieces[asked] != nil && s.options.Remember > 0 {
				m.reads[asked] = s.number(p.module.pieces[asked], places)
			}
		}
		s.members = append(s.members, m)
	}
	s.digest = hex.EncodeToString(h.Sum(nil))
	s.admission = newIndex(s.members,
		[]v1alpha1.PolicyOperation{v1alpha1.OperationCreate, v1alpha1.OperationUpdate},
		func(m *member) bool { return m.answers(aboutObject) || m.answers(forType) })
	s.rendering = newIndex(s.members,
		[]v1alpha1.PolicyOperation{anyOperation},
		func(m *member) bool { return m.answers(forObjects) })
	return s
}

// answers tells whether a policy has rules that answer a question.
func (m *member) answers(asked question) bool { return m.module.queries[asked] != nil }

// matching returns the policies to ask a question about an admitted object. A
// policy displaces the built-in one that it replaces from all questions, also
// from those that it does not answer itself.
func (s *Set) matching(subject Subject, asked question) []*member {
	return slices.DeleteFunc(s.admission.matching(subject), func(m *member) bool { return !m.answers(asked) })
}

// number finds pieces in the set's, or adds them.
func (s *Set) number(pieces []piece, places map[string]int) []int {
	numbers := make([]int, 0, len(pieces))
	for _, piece := range pieces {
		name := piece.name()
		place, ok := places[name]
		if !ok {
			place = len(s.pieces)
			places[name] = place
			s.pieces = append(s.pieces, piece)
		}
		numbers = append(numbers, place)
	}
	return numbers
}

// Digest identifies the policies of the set with their matches and parameters:
// sets of the same digest answer the same.
func (s *Set) Digest() string { return s.digest }

// Names are the names of the policies, sorted.
func (s *Set) Names() []string {
	names := make([]string, len(s.members))
	for i, m := range s.members {
		names[i] = m.source.Name
	}
	return names
}

// Serves tells whether something stands for a policy's name, such as
// schedulers.kueue: the policy of that name, or one that replaces it. A DryRun
// policy does not, since nothing is done by it.
func (s *Set) Serves(name string) bool {
	return slices.ContainsFunc(s.members, func(m *member) bool {
		return m.enforcement() != v1alpha1.EnforcementDryRun && (m.source.Name == name || m.source.Replaces == name)
	})
}

// Asked are the names of the policies that would be asked about a subject, sorted.
func (s *Set) Asked(subject Subject) []string {
	var names []string
	for _, m := range s.matching(subject, aboutObject) {
		names = append(names, m.source.Name)
	}
	return names
}

// Reads tells whether any policy that would be asked about a subject reads what
// is at a path of input, such as "object", "metadata", "name", or may: where none
// does, the answer is the same whatever stands there. The rule type counts, and
// parameters do not.
func (s *Set) Reads(subject Subject, path ...string) bool {
	if len(path) > maxPath {
		path = path[:maxPath]
	}
	return slices.ContainsFunc(s.admission.matching(subject), func(m *member) bool {
		return m.module.reads[aboutObject].touches(path) || m.module.reads[forType].touches(path)
	})
}
