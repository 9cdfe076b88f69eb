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

// driverModel is a GPU model with a driver's profile names. The names differ between drivers in
// rounding, and pods request profiles by the driver's names.
type driverModel struct {
	migModel *mig.Model
	// profileNames holds the driver's names; empty if the agent does not report them.
	profileNames []v1alpha1.MIGProfile
	// profileByName and nameByProfile map the driver's names.
	profileByName map[v1alpha1.MIGProfile]*mig.Profile
	nameByProfile map[*mig.Profile]v1alpha1.MIGProfile

	// aliases caches other names that pods request, nil for unknown ones.
	aliases    sync.Map
	aliasCount atomic.Int32
}

// maxAliases bounds the cache of aliases, since pods may request any name.
const maxAliases = 1024

// driverModels holds each model once, so GPUs of one model share the value.
var driverModels sync.Map

type driverModelKey struct {
	model *mig.Model
	names string
}

func driverModelOf(model *mig.Model, names []v1alpha1.MIGProfile) *driverModel {
	var text strings.Builder
	for _, name := range names {
		text.WriteString(" " + string(name))
	}
	key := driverModelKey{model, text.String()}
	if known, ok := driverModels.Load(key); ok {
		return known.(*driverModel) //nolint:forcetypeassert // the map holds only models
	}
	k := &driverModel{
		migModel: model, profileNames: names,
		profileByName: map[v1alpha1.MIGProfile]*mig.Profile{}, nameByProfile: map[*mig.Profile]v1alpha1.MIGProfile{},
	}
	for _, name := range names {
		if p, err := model.Profile(name); err == nil {
			k.profileByName[name] = p
			if _, named := k.nameByProfile[p]; !named {
				k.nameByProfile[p] = name
			}
		}
	}
	if len(names) == 0 {
		for i := range model.Profiles {
			p := &model.Profiles[i]
			k.profileByName[p.Name], k.nameByProfile[p] = p, p.Name
		}
	}
	known, _ := driverModels.LoadOrStore(key, k)
	return known.(*driverModel) //nolint:forcetypeassert // the map holds only models
}

// resolveProfile returns the profile of a requested name with any rounding of its memory; nil
// if the model does not have it.
func (k *driverModel) resolveProfile(name v1alpha1.MIGProfile) *mig.Profile {
	if p, ok := k.profileByName[name]; ok {
		return p
	}
	if known, ok := k.aliases.Load(name); ok {
		return known.(*mig.Profile) //nolint:forcetypeassert // the map holds only profiles
	}
	p, err := k.migModel.Profile(name)
	if _, known := k.nameByProfile[p]; err != nil || !known {
		p = nil
	}
	if k.aliasCount.Add(1) <= maxAliases {
		k.aliases.Store(name, p)
	}
	return p
}

// driverName returns the driver's name of a profile.
func (k *driverModel) driverName(p *mig.Profile) v1alpha1.MIGProfile {
	if name, ok := k.nameByProfile[p]; ok {
		return name
	}
	return p.Name
}
