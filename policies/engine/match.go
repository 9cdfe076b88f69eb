// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// index finds the policies that match a subject without looking at the others.
type index struct {
	members []*member
	// byKind has the policies under each kind as they name it: what names none is
	// about pods, and what renders is under "". A policy is in it once for each of
	// its operations.
	byKind map[kindKey]*places
}

type kindKey struct {
	operation v1alpha1.PolicyOperation
	kind      string
}

// places has the places of policies in the list of all, by the narrowest thing
// that they name.
type places struct {
	everywhere   []int
	byDepartment map[string][]int
	byProject    map[string][]int
}

// anyOperation is the operation under which policies are indexed that are asked
// apart from any: those that render.
const anyOperation v1alpha1.PolicyOperation = ""

// newIndex indexes those policies that want it, which are sorted by name.
func newIndex(members []*member, operations []v1alpha1.PolicyOperation, want func(*member) bool) *index {
	x := &index{members: members, byKind: make(map[kindKey]*places)}
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
				x.under(kindKey{operation, kind}).add(place, p.source.Match)
			}
		}
	}
	return x
}

func (x *index) under(key kindKey) *places {
	found, ok := x.byKind[key]
	if !ok {
		found = &places{byDepartment: make(map[string][]int), byProject: make(map[string][]int)}
		x.byKind[key] = found
	}
	return found
}

func (p *places) add(place int, match v1alpha1.PolicyMatch) {
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
		p.everywhere = append(p.everywhere, place)
	}
}

// matching returns the policies to ask about a subject, sorted by name: those
// that match, less the built-in ones in whose place another of them stands.
func (x *index) matching(subject Subject) []*member {
	var found []int
	kinds := []string{"", subject.Kind, subject.Kind + "." + subject.Group}
	if subject.Group == "" {
		kinds = kinds[:2]
	}
	for _, kind := range kinds {
		if at, ok := x.byKind[kindKey{subject.Operation, kind}]; ok {
			found = append(found, at.everywhere...)
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
		if !p.speaksFor(subject.Schedulers) {
			continue
		}
		matched = append(matched, p)
		if name := p.replaces(); name != "" {
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

// schedulerPolicies begin the names of the policies that speak for one scheduler.
const schedulerPolicies = "schedulers."

// speaksFor is false where the policy is that of a scheduler which is none of these.
func (p *policy) speaksFor(schedulers Schedulers) bool {
	name := cmp.Or(p.replaces(), p.source.Name)
	scheduler, is := strings.CutPrefix(name, schedulerPolicies)
	return !is || schedulers.has(v1alpha1.Scheduler(scheduler))
}
