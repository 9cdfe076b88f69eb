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

// Limits limit the time that policies may take.
type Limits struct {
	// Evaluation is the time that one policy may take for one object; 250 ms if it is 0.
	Evaluation time.Duration
	// Request is the time limit of all policies for one request, unless its context ends
	// sooner; 1500 ms if it is 0. Waiting for a processor counts.
	Request time.Duration
}

// WithDefaults returns l with the defaults of the limits that are not set. A limit below 0 is kept.
func (l Limits) WithDefaults() Limits {
	if l.Evaluation == 0 {
		l.Evaluation = 250 * time.Millisecond
	}
	if l.Request == 0 {
		l.Request = 1500 * time.Millisecond
	}
	return l
}

// Set holds all policies that are active together. It never changes, so a caller that
// evaluates one object twice uses the same policies.
type Set struct {
	members []*member
	// segments are what the policies read of input, each once.
	segments  []dependency.Segment
	admission *matchIndex
	rendering *matchIndex
	hasDryRun bool
	options   Options

	// digest identifies the policies and the data that they read, policiesDigest the policies alone.
	digest, policiesDigest string
	// data is what the policies read beside input, and views what each of them reads of it; nil if none of
	// them reads data.
	data  *Data
	views map[*policy]dataViews
}

// member is a policy in a set.
type member struct {
	*policy
	// segmentIndexes point into the segments of the set, for each kind of request; nil if
	// results are not cached.
	segmentIndexes [requestKindCount][]int
	// excludedDepartments and excludedProjects are those for which the policy is not evaluated.
	excludedDepartments, excludedProjects map[string]bool
}

// newMember returns a member without segments.
func newMember(p *policy) *member {
	asSet := func(names []string) map[string]bool {
		if len(names) == 0 {
			return nil
		}
		set := make(map[string]bool, len(names))
		for _, name := range names {
			set[name] = true
		}
		return set
	}
	exclude := p.source.Match.Exclude
	return &member{policy: p, excludedDepartments: asSet(exclude.Departments), excludedProjects: asSet(exclude.Projects)}
}

// excludes reports whether the policy is not evaluated for a subject that its match selects.
func (m *member) excludes(subject Subject) bool {
	return m.excludedProjects[subject.Project] || m.excludedDepartments[subject.Department]
}

func newSet(policies []*policy, data *Data, options Options) *Set {
	slices.SortFunc(policies, func(a, b *policy) int { return strings.Compare(a.source.Name, b.source.Name) })
	s := &Set{options: options}
	h := sha256.New()
	indexes := make(map[string]int)
	for _, p := range policies {
		hashText(h, string(p.digest[:]))
		m := newMember(p)
		s.hasDryRun = s.hasDryRun || isDryRun(m)
		for _, kind := range []requestKind{admissionRequest, typeRequest} {
			if p.module.segments[kind] != nil && s.options.CacheEntries > 0 {
				m.segmentIndexes[kind] = s.indexSegments(p.module.segments[kind], indexes)
			}
		}
		s.members = append(s.members, m)
	}
	s.policiesDigest = hex.EncodeToString(h.Sum(nil))
	s.setData(data)
	s.admission = newMatchIndex(s.members,
		[]v1alpha1.PolicyOperation{v1alpha1.OperationCreate, v1alpha1.OperationUpdate},
		func(m *member) bool { return m.handles(admissionRequest) || m.handles(typeRequest) })
	s.rendering = newMatchIndex(s.members,
		[]v1alpha1.PolicyOperation{anyOperation},
		func(m *member) bool { return m.handles(renderRequest) })
	return s
}

// handles reports whether a policy has rules for a kind of request. One that cannot be evaluated
// refuses every object, and fails to render if it has rules for that.
func (m *member) handles(kind requestKind) bool {
	if m.unusable != nil {
		return kind == admissionRequest || kind == renderRequest && m.module.rules.ofKind(kind) != 0
	}
	return m.module.queries[kind] != nil
}

// match returns the policies to evaluate for an admitted object. A policy displaces the
// built-in one that it replaces for every kind of request, even for kinds that it does
// not handle itself.
func (s *Set) match(subject Subject, kind requestKind) []*member {
	return slices.DeleteFunc(s.admission.match(subject), func(m *member) bool { return !m.handles(kind) })
}

// indexSegments returns the indexes of segments in the set, and adds missing ones.
func (s *Set) indexSegments(segments []dependency.Segment, indexes map[string]int) []int {
	found := make([]int, 0, len(segments))
	for _, segment := range segments {
		id := segment.ID()
		index, ok := indexes[id]
		if !ok {
			index = len(s.segments)
			indexes[id] = index
			s.segments = append(s.segments, segment)
		}
		found = append(found, index)
	}
	return found
}

// Digest identifies the policies of the set with their matches and parameters, and the data that they
// read. Sets with the same digest return the same results.
func (s *Set) Digest() string { return s.digest }

// Names returns the sorted names of the policies.
func (s *Set) Names() []string {
	names := make([]string, len(s.members))
	for i, m := range s.members {
		names[i] = m.source.Name
	}
	return names
}

// Provides reports whether a policy of this name, such as schedulers.kueue, or one that
// replaces it, takes effect. DryRun policies do not.
func (s *Set) Provides(name string) bool {
	return slices.ContainsFunc(s.members, func(m *member) bool {
		return m.enforcement() != v1alpha1.EnforcementDryRun && (m.source.Name == name || m.source.Replaces == name)
	})
}

// Reads reports whether a policy that matches a subject reads a path of input, such as
// "object", "metadata", "name", or may read it. If none does, the result does not depend
// on the value there. The rule type counts; parameters do not.
func (s *Set) Reads(subject Subject, path ...string) bool {
	return slices.ContainsFunc(s.admission.match(subject), func(m *member) bool {
		return m.module.footprints[admissionRequest].Overlaps(path) || m.module.footprints[typeRequest].Overlaps(path)
	})
}

// matchIndex finds the policies that match a subject without visiting the others.
type matchIndex struct {
	members []*member
	// byKind lists policies by operation and by kind as their match writes it. A policy
	// that names no kind matches pods; rendering policies are listed under "".
	byKind map[kindKey]*matchBucket
}

type kindKey struct {
	operation v1alpha1.PolicyOperation
	kind      string
}

// matchBucket holds indexes of policies, by the narrowest scope that they name.
type matchBucket struct {
	unscoped     []int
	byDepartment map[string][]int
	byProject    map[string][]int
}

// anyOperation is the index key of policies that render: they run apart from admission.
const anyOperation v1alpha1.PolicyOperation = ""

// newMatchIndex indexes the members that a filter includes. Members are sorted by name.
func newMatchIndex(members []*member, operations []v1alpha1.PolicyOperation, include func(*member) bool) *matchIndex {
	x := &matchIndex{members: members, byKind: make(map[kindKey]*matchBucket)}
	for i, p := range members {
		if !include(p) {
			continue
		}
		for _, operation := range operations {
			if named := p.source.Match.Operations; operation != anyOperation && len(named) > 0 && !slices.Contains(named, operation) {
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
				x.bucket(kindKey{operation, kind}).add(i, p.source.Match)
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

func (p *matchBucket) add(index int, match v1alpha1.PolicyMatch) {
	switch {
	case len(match.Projects) > 0:
		for _, project := range match.Projects {
			p.byProject[project] = append(p.byProject[project], index)
		}
	case len(match.Departments) > 0:
		for _, department := range match.Departments {
			p.byDepartment[department] = append(p.byDepartment[department], index)
		}
	default:
		p.unscoped = append(p.unscoped, index)
	}
}

// match returns the policies that match a subject, sorted by name, without the built-in
// ones that another of them replaces.
func (x *matchIndex) match(subject Subject) []*member {
	var found []int
	kinds := []string{"", subject.Kind, subject.Kind + "." + subject.Group}
	if subject.Group == "" {
		kinds = kinds[:2]
	}
	for _, kind := range kinds {
		if bucket, ok := x.byKind[kindKey{subject.Operation, kind}]; ok {
			found = append(found, bucket.unscoped...)
			found = append(found, bucket.byDepartment[subject.Department]...)
			found = append(found, bucket.byProject[subject.Project]...)
		}
		if subject.Kind == "" {
			break
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	matched := make([]*member, 0, len(found))
	replaced := make(map[string]bool)
	for _, index := range found {
		p := x.members[index]
		departments := p.source.Match.Departments
		if len(departments) > 0 && !slices.Contains(departments, subject.Department) {
			continue
		}
		if p.excludes(subject) || !p.servesAnyOf(subject.Schedulers) {
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

// schedulerPrefix starts the names of policies for one scheduler.
const schedulerPrefix = "schedulers."

// servesAnyOf returns false if the policy is for a scheduler that is not among these.
func (p *policy) servesAnyOf(schedulers Schedulers) bool {
	name := cmp.Or(p.replacedPolicy(), p.source.Name)
	scheduler, found := strings.CutPrefix(name, schedulerPrefix)
	return !found || schedulers.Has(v1alpha1.Scheduler(scheduler))
}
