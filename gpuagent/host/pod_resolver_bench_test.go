// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"testing"
)

// BenchmarkResolve resolves a process as each sample does for each process on a GPU.
func BenchmarkResolve(b *testing.B) {
	r := &PodResolver{Proc: "/proc"}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := r.Resolve(uint32(os.Getpid())); err != nil {
			b.Fatal(err)
		}
	}
}
