// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

// InWords is the amount as sentences have it: "no GPUs", "0.5 of a GPU", "1 GPU",
// "1.5 GPUs".
func (m Milli) InWords() string {
	switch {
	case m == 0:
		return "no GPUs"
	case 0 < m && m < one:
		return m.String() + " of a GPU"
	case m == one:
		return "1 GPU"
	default:
		return m.String() + " GPUs"
	}
}
