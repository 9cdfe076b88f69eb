// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/facts"
)

// The boards' memory is what NVML reports of them, in MiB.
func TestPriceIsMemorySlicesOverTheBoards(t *testing.T) {
	boards := map[string]struct {
		memoryMiB int64
		prices    map[v1alpha1.MIGProfile]workload.Milli
	}{
		"A100 40 GB": {40960, map[v1alpha1.MIGProfile]workload.Milli{"1g.5gb": 125, "1g.5gb+me": 125, "1g.10gb": 250, "2g.10gb": 250, "3g.20gb": 500, "4g.20gb": 500, "7g.40gb": 1000}},
		"H100 80 GB": {81559, map[v1alpha1.MIGProfile]workload.Milli{"1g.10gb": 125, "1g.10gb-me": 125, "1g.20gb": 250, "2g.20gb": 250, "3g.40gb": 500, "4g.40gb": 500, "7g.80gb": 1000}},
		"H100 NVL":   {95830, map[v1alpha1.MIGProfile]workload.Milli{"1g.12gb": 125, "1g.24gb": 250, "2g.24gb": 250, "3g.47gb": 500, "4g.47gb": 500, "7g.94gb": 1000}},
		"H200":       {143771, map[v1alpha1.MIGProfile]workload.Milli{"1g.18gb": 125, "1g.35gb": 250, "2g.35gb": 250, "3g.71gb": 500, "4g.71gb": 500, "7g.141gb": 1000}},
		"B200":       {183359, map[v1alpha1.MIGProfile]workload.Milli{"1g.23gb": 125, "1g.45gb": 250, "2g.45gb": 250, "3g.90gb": 500, "4g.90gb": 500, "7g.180gb": 1000}},
		"A30":        {24576, map[v1alpha1.MIGProfile]workload.Milli{"1g.6gb": 250, "2g.12gb": 500, "4g.24gb": 1000}},
		"not known":  {0, map[v1alpha1.MIGProfile]workload.Milli{"1g.5gb": 1000}},
		"nonsense":   {1, map[v1alpha1.MIGProfile]workload.Milli{"1g.9999gb": 1000, "no profile": 1000, "": 1000}},
		"enormous":   {1 << 60, map[v1alpha1.MIGProfile]workload.Milli{"1g.5gb": 125}},
	}
	for name, board := range boards {
		for profile, want := range board.prices {
			if got := facts.Price(profile, board.memoryMiB); got != want {
				t.Errorf("%s: a slice %s costs %s of a GPU, want %s", name, profile, got, want)
			}
		}
	}
}
