// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// uuid is the same for the same words, in the form of version 5, and another for
// others.
func uuid(words ...any) string {
	sum := digest(words...)
	sum[6] = sum[6]&0x0f | 0x50
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// chance is a source of what looks random, the same for the same words.
func chance(words ...any) *rand.Rand {
	sum := digest(words...)
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(sum[0:8]), binary.LittleEndian.Uint64(sum[8:16])))
}

func digest(words ...any) [sha256.Size]byte { return sha256.Sum256(fmt.Appendf(nil, "%q", words)) }

// shuffle puts a list into any order.
func shuffle[T any](r *rand.Rand, list []T) {
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}
