// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	"sluice.dev/api/workload"
)

func TestInWords(t *testing.T) {
	for milli, want := range map[workload.Milli]string{
		0: "no GPUs", 1: "0.001 of a GPU", 500: "0.5 of a GPU", 1000: "1 GPU", 1500: "1.5 GPUs", 2000: "2 GPUs",
	} {
		if got := milli.InWords(); got != want {
			t.Errorf("%d in words = %q, want %q", milli, got, want)
		}
	}
}
