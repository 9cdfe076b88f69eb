// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"slices"

	"sluice.dev/gpuagent/mig"
	"sluice.dev/gpuagent/nvml"
)

// undo are the steps that bring back the former instances, exactly where they were, as
// far as nobody is in the way: what the change made and nobody has goes, what it took
// away comes again. Unlike decide it does what it can.
func undo(p *picture, former []slot) []step {
	if p.current != nvml.Enabled {
		return nil
	}
	var steps []step
	if p.pending != p.current {
		steps = append(steps, step{act: setMode, mode: p.current})
	}
	var taken mig.Mask
	for i := range p.instances {
		it := &p.instances[i]
		wasThere := slices.ContainsFunc(former, func(s slot) bool { return s.holds(it) })
		switch {
		case it.ours && !wasThere && p.heldBy(it) == "":
			steps = append(steps, step{act: destroy, instance: *it})
			continue
		case it.ours && len(it.computes) == 0 && wasThere:
			steps = append(steps, step{act: complete, instance: *it})
		}
		taken |= it.mask()
	}
	for _, s := range former {
		if _, known := p.driver(s.profile); known && s.mask()&taken == 0 {
			steps = append(steps, step{act: create, slot: s})
			taken |= s.mask()
		}
	}
	return steps
}

// missing are those of the slots in which there is no complete instance.
func (p *picture) missing(slots []slot) []slot {
	return slices.DeleteFunc(slices.Clone(slots), func(s slot) bool {
		it := p.at(s)
		return it != nil && len(it.computes) > 0
	})
}
