// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"testing"

	"sluice.dev/gpuagent/nvml"
)

// Tally is what became of the cases.
type Tally struct {
	// Kept, Broken and LeftOut are how many promises were kept, were not, and were not
	// tried.
	Kept, Broken, LeftOut int
}

// promise is one case: what is promised, what has to be there to try it, how it is
// tried.
type promise struct {
	name  string
	needs []Feature
	try   func(*bench)
}

func promises() []promise {
	all := [][]promise{
		sessions, inventory, modes, profiles, layouts, destruction, computing, busy, resets, concurrency,
	}
	var list []promise
	for _, some := range all {
		list = append(list, some...)
	}
	return list
}

// Run holds an implementation to each promise in a test of its own, on a node of its own,
// and says how many were kept and how many left out.
func Run(t *testing.T, target Target) Tally {
	t.Helper()
	var tally Tally
	t.Run(target.Name, func(t *testing.T) {
		missing := target.missing(t)
		for _, p := range promises() {
			t.Run(p.name, func(t *testing.T) {
				defer func() {
					switch {
					case t.Skipped():
						tally.LeftOut++
					case t.Failed():
						tally.Broken++
					default:
						tally.Kept++
					}
				}()
				for _, feature := range p.needs {
					if reason, lacked := missing[feature]; lacked {
						t.Skipf("left out: it is for those of which this holds: %s; and %s", feature, reason)
					}
				}
				p.try(newBench(t, target))
			})
		}
		t.Logf("%s: %d promises kept, %d broken, %d left out", target.Name, tally.Kept, tally.Broken, tally.LeftOut)
	})
	return tally
}

// missing is what the target lacks, by its own word and by what the suite finds.
func (target Target) missing(t *testing.T) map[Feature]string {
	t.Helper()
	missing := map[Feature]string{}
	for feature, reason := range target.Lacks {
		if reason == "" {
			t.Errorf("the target lacks %q without a reason", feature)
		}
		missing[feature] = reason
	}
	if target.ReadOnly {
		missing[changing] = "it is read-only"
	}
	b := newBench(t, target)
	if b.attach == nil && missing[Processes] == "" {
		missing[Processes] = "nothing attaches a process"
	}
	if _, _, err := b.MIGMode(b.gpu.UUID); errors.Is(err, nvml.ErrNotSupported) {
		missing[cutting] = b.gpu.Name + " cannot be cut"
	}
	return missing
}
