// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"testing"

	"sluice.dev/gpuagent/nvml"
)

// Results is what became of the cases.
type Results struct {
	// Passed, Broken and LeftOut are how many promises were kept, were not, and were not
	// tried.
	Passed, Failed, Skipped int
}

// testCase is one case: what is promised, what has to be there to try it, how it is
// tried.
type testCase struct {
	name     string
	requires []Feature
	run      func(*fixture)
}

func testCases() []testCase {
	all := [][]testCase{
		sessionCases, inventoryCases, modeCases, profileCases, layoutCases, destructionCases, computeInstanceCases, processCases, resetCases, concurrencyCases,
	}
	var list []testCase
	for _, some := range all {
		list = append(list, some...)
	}
	return list
}

// Run holds an implementation to each promise in a test of its own, on a node of its own,
// and says how many were kept and how many left out.
func Run(t *testing.T, target Target) Results {
	t.Helper()
	var tally Results
	t.Run(target.Name, func(t *testing.T) {
		missing := target.missingFeatures(t)
		for _, p := range testCases() {
			t.Run(p.name, func(t *testing.T) {
				defer func() {
					switch {
					case t.Skipped():
						tally.Skipped++
					case t.Failed():
						tally.Failed++
					default:
						tally.Passed++
					}
				}()
				for _, feature := range p.requires {
					if reason, lacked := missing[feature]; lacked {
						t.Skipf("left out: it is for those of which this holds: %s; and %s", feature, reason)
					}
				}
				p.run(newFixture(t, target))
			})
		}
		t.Logf("%s: %d promises kept, %d broken, %d left out", target.Name, tally.Passed, tally.Failed, tally.Skipped)
	})
	return tally
}

// missingFeatures is what the target lacks, by its own word and by what the suite finds.
func (target Target) missingFeatures(t *testing.T) map[Feature]string {
	t.Helper()
	missing := map[Feature]string{}
	for feature, reason := range target.Lacks {
		if reason == "" {
			t.Errorf("the target lacks %q without a reason", feature)
		}
		missing[feature] = reason
	}
	if target.ReadOnly {
		missing[writable] = "it is read-only"
	}
	b := newFixture(t, target)
	if b.attach == nil && missing[Processes] == "" {
		missing[Processes] = "nothing attaches a process"
	}
	if _, _, err := b.MIGMode(b.gpu.UUID); errors.Is(err, nvml.ErrNotSupported) {
		missing[supportsMIG] = b.gpu.Name + " cannot be cut"
	}
	return missing
}

// Target is an implementation that is held to the suite.
type Target struct {
	// Name is what its tests are called.
	Name string
	// New is a node for one case: not initialized, its GPUs not cut and not in MIG mode
	// unless the target is read-only, nobody on them. What it starts ends with the test.
	New func(t *testing.T) Node
	// Lacks are the features that it does not have, each with the reason.
	Lacks map[Feature]string
	// ReadOnly leaves out every case that would change a GPU.
	ReadOnly bool
}

// Node is one node of an implementation.
type Node struct {
	// Library is the node's driver.
	Library nvml.Library
	// Attach puts a process onto a device, a GPU's UUID or a MIG device's, with so much
	// memory in MiB or nvml.UnknownMiB; Detach takes it off. Nil where the
	// target lacks Processes.
	Attach func(pid uint32, device string, memoryMiB int64) error
	Detach func(pid uint32)
}

// Feature is something that an implementation may lack.
type Feature string

// The features.
const (
	// Refusals: an instance is refused where there is no room for it.
	Refusals Feature = "refuses instances for which there is no room"
	// Guards: what holds something else is not destroyed.
	Guards Feature = "refuses to destroy what is in use"
	// ModeGuards: instances need MIG mode, and are gone with it.
	ModeGuards Feature = "keeps instances to MIG mode"
	// Identifiers: profiles have the identifiers that the boards' real drivers give.
	Identifiers Feature = "has the real profiles' identifiers"
	// Capacity: RemainingCapacity answers.
	Capacity Feature = "tells the remaining capacity"
	// FreshUUIDs: a MIG device never has the UUID of one that is gone.
	FreshUUIDs Feature = "never gives a UUID again"
	// Processes: processes can be attached, and are listed.
	Processes Feature = "has processes"
	// Utilization: GPUs and processes tell how busy they are.
	Utilization Feature = "tells utilization"
	// Reset: a GPU can be reset.
	Reset Feature = "resets GPUs"

	// supportsMIG is that the board can be cut, and changing that the target is not read-only.
	// The suite finds both out itself.
	supportsMIG Feature = "can be cut"
	writable    Feature = "may be changed"
)
