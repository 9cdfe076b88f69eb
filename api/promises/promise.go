// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
)

// Promise is what a department has of a thing, and has promised of it.
type Promise struct {
	Thing

	// Has is the department's own guarantee of GPUs, or its quota of CPU or memory.
	Has resource.Quantity
	// Promised is the sum of what its projects were.
	Promised resource.Quantity
	// Shares are theirs, the largest first; none of nothing.
	Shares []Share
	// Unstated are the projects without a quota of it, by name; only of CPU and
	// memory, of which they can then take all there is.
	Unstated []string
}

// Share is a project's part of a promise.
type Share struct {
	// Project is the project's name.
	Project string
	// Quantity is how much it was promised, more than 0.
	Quantity resource.Quantity
}

// Of is what the department has and has promised: of its node pools in their
// order, then of CPU and memory where it has a quota of them. Projects of other
// departments are left out, and so is the one named without, if any.
func Of(department *v1alpha1.Department, projects []v1alpha1.Project, without string) []Promise {
	spec := &department.Spec
	things := make([]Thing, 0, len(spec.NodePools)+2)
	for i := range spec.NodePools {
		things = append(things, GPUsOf(spec.NodePools[i].Name))
	}
	things = append(things, CPU, Memory)
	var promises []Promise
	for _, thing := range things {
		has := thing.In(spec.NodePools, spec.Resources)
		if has == nil {
			continue
		}
		promise := Promise{Thing: thing, Has: *has}
		for i := range projects {
			if p := &projects[i]; p.Spec.Department == department.Name && p.Name != without {
				promise.add(p)
			}
		}
		slices.SortFunc(promise.Shares, byShare)
		slices.Sort(promise.Unstated)
		promises = append(promises, promise)
	}
	return promises
}

func (p *Promise) add(project *v1alpha1.Project) {
	share := p.In(project.Spec.NodePools, project.Spec.Resources)
	switch {
	case share == nil && p.Pool == "":
		p.Unstated = append(p.Unstated, project.Name)
	case share != nil && share.Sign() > 0:
		p.Promised.Add(*share)
		p.Shares = append(p.Shares, Share{Project: project.Name, Quantity: *share})
	}
}

func byShare(a, b Share) int {
	if c := b.Quantity.Cmp(a.Quantity); c != 0 {
		return c
	}
	return strings.Compare(a.Project, b.Project)
}

// Over tells whether more was promised than the department has.
func (p *Promise) Over() bool { return p.Promised.Cmp(p.Has) > 0 }

// Left is what can still be promised; never less than 0.
func (p *Promise) Left() resource.Quantity {
	left := p.Has.DeepCopy()
	left.Sub(p.Promised)
	if left.Sign() < 0 {
		return resource.Quantity{Format: p.Has.Format}
	}
	return left
}

// named is how many projects a sentence names before it only counts.
const named = 3

// Largest says who has most of it: "course 2, thesis 500m and 4 more"; empty
// where nobody has any.
func (p *Promise) Largest() string {
	var words []string
	for i := range p.Shares {
		words = append(words, p.Shares[i].Project+" "+p.Shares[i].Quantity.String())
	}
	return Few(words)
}

// Few is a list in words that names a few and counts the others: "a, b, c and 4 more".
func Few(words []string) string {
	shown := strings.Join(words[:min(named, len(words))], ", ")
	if more := len(words) - named; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return shown
}

// Excess says of every thing of which more was promised than there is how much,
// and to whom; empty where there is none.
func Excess(promises []Promise) string {
	var words []string
	for i := range promises {
		p := &promises[i]
		if p.Over() {
			words = append(words, fmt.Sprintf("%s: it has %s and has promised %s (%s)", p.Thing, p.Has.String(), p.Promised.String(), p.Largest()))
		}
	}
	return strings.Join(words, "; ")
}
