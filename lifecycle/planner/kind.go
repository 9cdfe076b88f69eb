// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"strings"
	"sync"
	"sync/atomic"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// kind is a board with the names that a driver has for its profiles: they differ in
// rounding between drivers, and a pod asks by the driver's.
type kind struct {
	board *mig.Board
	// names are the driver's; empty where the agent does not tell.
	names []v1alpha1.MIGProfile
	// byName is filled for the names that the driver has.
	byName map[v1alpha1.MIGProfile]*mig.Profile
	byPlan map[*mig.Profile]v1alpha1.MIGProfile

	// others remembers what other names mean, of which there are few that make sense;
	// a pod may ask for any.
	others     sync.Map
	remembered atomic.Int32
}

// mostRemembered bounds what is remembered of names.
const mostRemembered = 1024

// kinds has each kind once, so that two GPUs of a kind have the same.
var kinds sync.Map

func kindOf(board *mig.Board, names []v1alpha1.MIGProfile) *kind {
	var key strings.Builder
	key.WriteString(board.Name)
	for _, name := range names {
		key.WriteString(" " + string(name))
	}
	if known, ok := kinds.Load(key.String()); ok {
		return known.(*kind) //nolint:forcetypeassert // only kinds are stored
	}
	k := &kind{board: board, names: names, byName: map[v1alpha1.MIGProfile]*mig.Profile{}, byPlan: map[*mig.Profile]v1alpha1.MIGProfile{}}
	for _, name := range names {
		if p, err := board.Named(name); err == nil {
			k.byName[name] = p
			if _, named := k.byPlan[p]; !named {
				k.byPlan[p] = name
			}
		}
	}
	if len(names) == 0 {
		for i := range board.Profiles {
			p := &board.Profiles[i]
			k.byName[p.Name], k.byPlan[p] = p, p.Name
		}
	}
	known, _ := kinds.LoadOrStore(key.String(), k)
	return known.(*kind) //nolint:forcetypeassert // only kinds are stored
}

// profile is what a pod asks for by that name, however its memory is rounded; nil where
// such a GPU cannot be cut so.
func (k *kind) profile(name v1alpha1.MIGProfile) *mig.Profile {
	if p, ok := k.byName[name]; ok {
		return p
	}
	if known, ok := k.others.Load(name); ok {
		return known.(*mig.Profile) //nolint:forcetypeassert // only profiles are stored
	}
	p, err := k.board.Named(name)
	if _, has := k.byPlan[p]; err != nil || !has {
		p = nil
	}
	if k.remembered.Add(1) <= mostRemembered {
		k.others.Store(name, p)
	}
	return p
}

// nameOf is how the driver calls a profile.
func (k *kind) nameOf(p *mig.Profile) v1alpha1.MIGProfile {
	if name, ok := k.byPlan[p]; ok {
		return name
	}
	return p.Name
}
