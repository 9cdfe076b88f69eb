// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"

	"sluice.dev/policies/engine/recent"
	"sluice.dev/policies/intent"
)

// memory keeps a policy's latest answers to one question by the pieces of input
// that they follow from.
//
// A policy has no clock, no chance and no data: the same pieces give the same
// answer. Which pieces it reads is known when it is compiled. So pods that differ
// in nothing that a policy reads are asked about once. What is remembered is
// shared by all who are given it, and never changed.
type memory = recent.Memory[[sha256.Size]byte, answer]

// maxRemembered is how many bytes the answers of one generation of a memory take
// at most, about.
const maxRemembered = 1 << 20

func newMemory(entries int) *memory {
	return recent.New[[sha256.Size]byte, answer](entries, maxRemembered)
}

// size is how many bytes an answer takes, about.
func (a *answer) size() int {
	size := 256
	for _, complaints := range [][]intent.Complaint{a.deny, a.violation, a.warn} {
		for _, c := range complaints {
			size += 64 + len(c.Message) + len(c.Field) + len(c.Fix)
		}
	}
	size += sizeOf(a.intent.Defaults) + sizeOf(a.intent.Overrides)
	for _, node := range a.intent.Nodes {
		size += 64 + len(node.Key)
		for _, value := range node.Values {
			size += 16 + len(value)
		}
	}
	for _, addition := range a.intent.Append {
		size += sizeOf([]any(addition.Path)) + sizeOf(addition.Value)
	}
	for _, path := range a.intent.Remove {
		size += sizeOf([]any(path))
	}
	return size
}

func sizeOf(value any) int {
	size := 16
	switch value := value.(type) {
	case string:
		size += len(value)
	case []any:
		for _, element := range value {
			size += sizeOf(element)
		}
	case map[string]any:
		for key, element := range value {
			size += 32 + len(key) + sizeOf(element)
		}
	}
	return size
}
