// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"testing"

	"sluice.dev/gpuagent/nvml"
)

// Results counts the cases by result.
type Results struct {
	Passed, Failed, Skipped int
}

// testCase is a guarantee, the features that its test needs, and the test.
type testCase struct {
	name     string
	requires []Feature
	run      func(*fixture)
}

func testCases() []testCase {
	all := [][]testCase{
		sessionCases, inventoryCases, modeCases, profileCases, layoutCases, destructionCases, computeInstanceCases, processCases, resetCases,
		concurrencyCases,
	}
	var list []testCase
	for _, some := range all {
		list = append(list, some...)
	}
	return list
}

// Run tests each guarantee in a subtest on a new node. It returns how many cases passed, failed and
// were skipped.
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
						t.Skipf("skipped: needs a target that %s; %s", feature, reason)
					}
				}
				p.run(newFixture(t, target))
			})
		}
		t.Logf("%s: %d guarantees passed, %d failed, %d skipped", target.Name, tally.Passed, tally.Failed, tally.Skipped)
	})
	return tally
}

// missingFeatures returns the features that the target lacks, as declared and as found.
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
		missing[writable] = "the target is read-only"
	}
	b := newFixture(t, target)
	if b.attach == nil && missing[Processes] == "" {
		missing[Processes] = "the target cannot attach processes"
	}
	if _, _, err := b.MIGMode(b.gpu.UUID); errors.Is(err, nvml.ErrNotSupported) {
		missing[supportsMIG] = b.gpu.Name + " does not support MIG"
	}
	return missing
}

// Target is an implementation under test.
type Target struct {
	// Name is the name of its subtests.
	Name string
	// New returns a node for one case: not initialized, without instances and processes, and not in
	// MIG mode unless the target is read-only. It ends with the test.
	New func(t *testing.T) Node
	// Lacks are the features that it lacks, each with the reason.
	Lacks map[Feature]string
	// ReadOnly skips every case that would change a GPU.
	ReadOnly bool
}

// Node is one node of an implementation.
type Node struct {
	// Library is the node's driver.
	Library nvml.Library
	// Attach attaches a process to a device, by a GPU's or MIG device's UUID, with memory in MiB or
	// nvml.UnknownMiB; Detach removes it. Nil if the target lacks Processes.
	Attach func(pid uint32, device string, memoryMiB int64) error
	Detach func(pid uint32)
}

// Feature is a feature that an implementation may lack.
type Feature string

// The features.
const (
	// Refusals: CreateInstance fails without room.
	Refusals Feature = "refuses instances for which there is no room"
	// Guards: an instance in use is not destroyed.
	Guards Feature = "refuses to destroy instances in use"
	// ModeGuards: instances exist only in MIG mode.
	ModeGuards Feature = "restricts instances to MIG mode"
	// Identifiers: profiles have the identifiers of real drivers.
	Identifiers Feature = "has the real profiles' identifiers"
	// Capacity: RemainingCapacity is implemented.
	Capacity Feature = "reports the remaining capacity"
	// FreshUUIDs: a MIG device never gets the UUID of a former one.
	FreshUUIDs Feature = "never reuses a UUID"
	// Processes: processes can be attached and are listed.
	Processes Feature = "has processes"
	// Utilization: GPUs and processes report their utilization.
	Utilization Feature = "reports utilization"
	// Reset: a GPU can be reset.
	Reset Feature = "resets GPUs"

	// supportsMIG: the GPU model supports MIG. writable: the target is not read-only. The suite
	// detects both.
	supportsMIG Feature = "supports MIG"
	writable    Feature = "may be changed"
)
