// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"math/rand/v2"
	"testing"

	"sluice.dev/api/v1alpha1"
)

// BenchmarkDecision measures one decision: where another instance goes, on a node
// of eight GPUs and on a thousand of them; and the whole plan of a node for three
// wants, of which one needs that something idle gives way.
func BenchmarkDecision(b *testing.B) {
	board, _ := BoardNamed("H100-80GB")
	random := rand.New(rand.NewPCG(1, 2))
	for name, nodes := range map[string]int{"Choose/1-node": 1, "Choose/1000-nodes": 1000} {
		taken := make([]Mask, 8*nodes)
		for i := range taken {
			taken[i] = Mask(random.IntN(256))
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				board.Choose(taken, &board.Profiles[i%len(board.Profiles)])
			}
		})
	}
	gpus := make([]GPU, 8)
	for i := range gpus {
		gpus[i] = GPU{Board: board, Instances: []Instance{
			{&board.Profiles[4], 4, InUse}, {&board.Profiles[3], 0, Use(i%2) * InUse}, {&board.Profiles[0], 3, InUse},
		}}
	}
	wants := []v1alpha1.MIGProfile{"1g.10gb", "2g.20gb", "2g.20gb"}
	b.Run("Plan/1-node", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Plan(gpus, wants)
		}
	})
}
