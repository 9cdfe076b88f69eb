// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine/dependency"
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

func (l Limits) withDefaults() Limits {
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
	// segments are what the policies read of input, each once.
	segments  []dependency.Segment
	admission *matchIndex
	rendering *matchIndex
	digest    string
	options   Options
}

// member is a policy in a set.
type member struct {
	*policy
	// segmentIndexes are places in the set's pieces, for each question; nil where answers are
	// not remembered.
	segmentIndexes [requestKindCount][]int
}

func newSet(policies []*policy, options Options) *Set {
	slices.SortFunc(policies, func(a, b *policy) int { return strings.Compare(a.source.Name, b.source.Name) })
	s := &Set{options: options}
	h := sha256.New()
	places := make(map[string]int)
	for _, p := range policies {
		hashText(h, string(p.digest[:]))
		m := &member{policy: p}
		for _, asked := range []requestKind{admissionRequest, typeRequest} {
			if p.module.segments[asked] != nil && s.options.CacheEntries > 0 {
				m.segmentIndexes[asked] = s.indexSegments(p.module.segments[asked], places)
			}
		}
		s.members = append(s.members, m)
	}
	s.digest = hex.EncodeToString(h.Sum(nil))
	s.admission = newMatchIndex(s.members,
		[]v1alpha1.PolicyOperation{v1alpha1.OperationCreate, v1alpha1.OperationUpdate},
		func(m *member) bool { return m.handles(admissionRequest) || m.handles(typeRequest) })
	s.rendering = newMatchIndex(s.members,
		[]v1alpha1.PolicyOperation{anyOperation},
		func(m *member) bool { return m.handles(renderRequest) })
	return s
}

// handles tells whether a policy has rules that answer a question.
func (m *member) handles(asked requestKind) bool { return m.module.queries[asked] != nil }

// match returns the policies to ask a question about an admitted object. A
// policy displaces the built-in one that it replaces from all questions, also
// from those that it does not answer itself.
func (s *Set) match(subject Subject, asked requestKind) []*member {
	return slices.DeleteFunc(s.admission.match(subject), func(m *member) bool { return !m.handles(asked) })
}

// indexSegments finds pieces in the set's, or adds them.
func (s *Set) indexSegments(pieces []dependency.Segment, places map[string]int) []int {
	numbers := make([]int, 0, len(pieces))
	for _, piece := range pieces {
		name := piece.ID()
		place, ok := places[name]
		if !ok {
			place = len(s.segments)
			places[name] = place
			s.segments = append(s.segments, piece)
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

// Provides tells whether something stands for a policy's name, such as
// schedulers.kueue: the policy of that name, or one that replaces it. A DryRun
// policy does not, since nothing is done by it.
func (s *Set) Provides(name string) bool {
	return slices.ContainsFunc(s.members, func(m *member) bool {
		return m.enforcement() != v1alpha1.EnforcementDryRun && (m.source.Name == name || m.source.Replaces == name)
	})
}

// MatchingPolicies are the names of the policies that would be asked about a subject, sorted.
func (s *Set) MatchingPolicies(subject Subject) []string {
	var names []string
	for _, m := range s.match(subject, admissionRequest) {
		names = append(names, m.source.Name)
	}
	return names
}

// Reads tells whether any policy that would be asked about a subject reads what
// is at a path of input, such as "object", "metadata", "name", or may: where none
// does, the answer is the same whatever stands there. The rule type counts, and
// parameters do not.
func (s *Set) Reads(subject Subject, path ...string) bool {
	return slices.ContainsFunc(s.admission.match(subject), func(m *member) bool {
		return m.module.footprints[admissionRequest].Overlaps(path) || m.module.footprints[typeRequest].Overlaps(path)
	})
}

// matchIndex finds the policies that match a subject without looking at the others.
type matchIndex struct {
	members []*member
	// byKind has the policies under each kind as they name it: what names none is
	// about pods, and what renders is under "". A policy is in it once for each of
	// its operations.
	byKind map[kindKey]*matchBucket
}

type kindKey struct {
	operation v1alpha1.PolicyOperation
	kind      string
}

// matchBucket has the places of policies in the list of all, by the narrowest thing
// that they name.
type matchBucket struct {
	unscoped     []int
	byDepartment map[string][]int
	byProject    map[string][]int
}

// anyOperation is the operation under which policies are indexed that are asked
// apart from any: those that render.
const anyOperation v1alpha1.PolicyOperation = ""

// newMatchIndex indexes those policies that want it, which are sorted by name.
func newMatchIndex(members []*member, operations []v1alpha1.PolicyOperation, want func(*member) bool) *matchIndex {
	x := &matchIndex{members: members, byKind: make(map[kindKey]*matchBucket)}
	for place, p := range members {
		if !want(p) {
			continue
		}
		for _, operation := range operations {
			if asked := p.source.Match.Operations; operation != anyOperation && len(asked) > 0 && !slices.Contains(asked, operation) {
				continue
			}
			kinds := p.source.Match.Kinds
			if len(kinds) == 0 {
				kinds = []string{"Pod"}
			}
			if operation == anyOperation {
				kinds = []string{""}
			}
			for _, kind := range kinds {
				x.bucket(kindKey{operation, kind}).add(place, p.source.Match)
			}
		}
	}
	return x
}

func (x *matchIndex) bucket(key kindKey) *matchBucket {
	found, ok := x.byKind[key]
	if !ok {
		found = &matchBucket{byDepartment: make(map[string][]int), byProject: make(map[string][]int)}
		x.byKind[key] = found
	}
	return found
}

func (p *matchBucket) add(place int, match v1alpha1.PolicyMatch) {
	switch {
	case len(match.Projects) > 0:
		for _, project := range match.Projects {
			p.byProject[project] = append(p.byProject[project], place)
		}
	case len(match.Departments) > 0:
		for _, department := range match.Departments {
			p.byDepartment[department] = append(p.byDepartment[department], place)
		}
	default:
		p.unscoped = append(p.unscoped, place)
	}
}

// match returns the policies to ask about a subject, sorted by name: those
// that match, less the built-in ones in whose place another of them stands.
func (x *matchIndex) match(subject Subject) []*member {
	var found []int
	kinds := []string{"", subject.Kind, subject.Kind + "." + subject.Group}
	if subject.Group == "" {
		kinds = kinds[:2]
	}
	for _, kind := range kinds {
		if at, ok := x.byKind[kindKey{subject.Operation, kind}]; ok {
			found = append(found, at.unscoped...)
			found = append(found, at.byDepartment[subject.Department]...)
			found = append(found, at.byProject[subject.Project]...)
		}
		if subject.Kind == "" {
			break
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	matched := make([]*member, 0, len(found))
	replaced := make(map[string]bool)
	for _, place := range found {
		p := x.members[place]
		departments := p.source.Match.Departments
		if len(departments) > 0 && !slices.Contains(departments, subject.Department) {
			continue
		}
		if !p.servesAnyOf(subject.Schedulers) {
			continue
		}
		matched = append(matched, p)
		if name := p.replacedPolicy(); name != "" {
			replaced[name] = true
		}
	}
	if len(replaced) == 0 {
		return matched
	}
	return slices.DeleteFunc(matched, func(p *member) bool {
		return p.source.BuiltIn && replaced[p.source.Name]
	})
}

// schedulerPrefix begin the names of the policies that speak for one scheduler.
const schedulerPrefix = "schedulers."

// servesAnyOf is false where the policy is that of a scheduler which is none of these.
func (p *policy) servesAnyOf(schedulers Schedulers) bool {
	name := cmp.Or(p.replacedPolicy(), p.source.Name)
	scheduler, is := strings.CutPrefix(name, schedulerPrefix)
	return !is || schedulers.has(v1alpha1.Scheduler(scheduler))
}
