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

// driverModel is a board with the names that a driver has for its profiles: they differ in
// rounding between drivers, and a pod asks by the driver's.
type driverModel struct {
	migModel *mig.Model
	// profileNames are the driver's; empty where the agent does not tell.
	profileNames []v1alpha1.MIGProfile
	// profileByName is filled for the names that the driver has.
	profileByName map[v1alpha1.MIGProfile]*mig.Profile
	nameByProfile map[*mig.Profile]v1alpha1.MIGProfile

	// aliases remembers what other names mean, of which there are few that make sense;
	// a pod may ask for any.
	aliases    sync.Map
	aliasCount atomic.Int32
}

// maxAliases bounds what is remembered of names.
const maxAliases = 1024

// driverModels has each kind once, so that two GPUs of a kind have the same.
var driverModels sync.Map

func driverModelOf(board *mig.Model, names []v1alpha1.MIGProfile) *driverModel {
	var key strings.Builder
	key.WriteString(board.Name)
	for _, name := range names {
		key.WriteString(" " + string(name))
	}
	if known, ok := driverModels.Load(key.String()); ok {
		return known.(*driverModel) //nolint:forcetypeassert // only kinds are stored
	}
	k := &driverModel{migModel: board, profileNames: names, profileByName: map[v1alpha1.MIGProfile]*mig.Profile{}, nameByProfile: map[*mig.Profile]v1alpha1.MIGProfile{}}
	for _, name := range names {
		if p, err := board.Profile(name); err == nil {
			k.profileByName[name] = p
			if _, named := k.nameByProfile[p]; !named {
				k.nameByProfile[p] = name
			}
		}
	}
	if len(names) == 0 {
		for i := range board.Profiles {
			p := &board.Profiles[i]
			k.profileByName[p.Name], k.nameByProfile[p] = p, p.Name
		}
	}
	known, _ := driverModels.LoadOrStore(key.String(), k)
	return known.(*driverModel) //nolint:forcetypeassert // only kinds are stored
}

// resolveProfile is what a pod asks for by that name, however its memory is rounded; nil where
// such a GPU cannot be cut so.
func (k *driverModel) resolveProfile(name v1alpha1.MIGProfile) *mig.Profile {
	if p, ok := k.profileByName[name]; ok {
		return p
	}
	if known, ok := k.aliases.Load(name); ok {
		return known.(*mig.Profile) //nolint:forcetypeassert // only profiles are stored
	}
	p, err := k.migModel.Profile(name)
	if _, has := k.nameByProfile[p]; err != nil || !has {
		p = nil
	}
	if k.aliasCount.Add(1) <= maxAliases {
		k.aliases.Store(name, p)
	}
	return p
}

// driverName is how the driver calls a profile.
func (k *driverModel) driverName(p *mig.Profile) v1alpha1.MIGProfile {
	if name, ok := k.nameByProfile[p]; ok {
		return name
	}
	return p.Name
}
