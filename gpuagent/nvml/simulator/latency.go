// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import "time"

// Span is how long something takes: at least Min, at most Max.
type Span struct{ Min, Max time.Duration }

// Latency is how long the driver takes. The zero value takes no time.
type Latency struct {
	// Create and Destroy are for each GPU instance and for each compute instance.
	Create, Destroy Span
	// Mode is for a change of the MIG mode, Reset for a GPU's reset.
	Mode, Reset Span
	// Read is for everything else.
	Read Span
}

// Measured is what real boards have been seen to take.
func Measured() Latency {
	const ms = time.Millisecond
	return Latency{
		Create:  Span{50 * ms, 130 * ms},
		Destroy: Span{120 * ms, 260 * ms},
		Mode:    Span{500 * ms, 1500 * ms},
		Reset:   Span{2000 * ms, 4000 * ms},
		Read:    Span{0, 2 * ms},
	}
}

func (l *Latency) of(method string) Span {
	switch method {
	case "CreateInstance", "CreateComputeInstance":
		return l.Create
	case "DestroyInstance", "DestroyComputeInstance":
		return l.Destroy
	case "SetMIGMode":
		return l.Mode
	case "Reset":
		return l.Reset
	default:
		return l.Read
	}
}
