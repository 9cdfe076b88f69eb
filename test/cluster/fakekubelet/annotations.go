// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"fmt"
	"strconv"
	"time"

	"sluice.dev/test/cluster/kwok"
)

// What a pod's author may write on it about its processes. It is read when the pod is
// admitted.
const (
	// ExitDelay says how long its processes outlive it: "30s", "1h30m".
	ExitDelay = "sim.sluice.dev/exit-delay"
	// Memory says how much memory each container's process takes of each of its
	// devices, in MiB: "8192". By default it is nine tenths.
	Memory = "sim.sluice.dev/memory"
	// Utilisation says how busy they keep each device, in percent: "0" to "100".
	Utilisation = "sim.sluice.dev/utilisation"

	defaultExitDelay   = time.Second
	defaultUtilisation = 80
	// mostMemory, in MiB, is more than any GPU has.
	mostMemory = 1 << 24
)

// behaviour is what the annotations say, or leave to the defaults.
type behaviour struct {
	exitDelay   time.Duration
	memoryMiB   int64 // negative where nobody says
	utilisation int
}

// behaviourOf returns an error that says which of the annotations for the simulation
// is wrong.
func behaviourOf(annotations map[string]string) (behaviour, error) {
	b := behaviour{defaultExitDelay, -1, defaultUtilisation}
	if value, set := annotations[ExitDelay]; set {
		err := kwok.CheckDuration(ExitDelay, value)
		if err == nil {
			b.exitDelay, err = time.ParseDuration(value)
		}
		if err != nil {
			return b, err
		}
	}
	if value, set := annotations[Memory]; set {
		n, ok := number(value, mostMemory)
		if !ok {
			return b, fmt.Errorf("annotation %s: %q is not an amount of memory in MiB: write a number from 0 to %d", Memory, value, mostMemory)
		}
		b.memoryMiB = int64(n)
	}
	if value, set := annotations[Utilisation]; set {
		n, ok := number(value, 100)
		if !ok {
			return b, fmt.Errorf("annotation %s: %q is not a percentage: write a number from 0 to 100", Utilisation, value)
		}
		b.utilisation = n
	}
	return b, kwok.CheckAnnotations(annotations)
}

// number reads one from 0 to most, in the only way in which it can be written.
func number(value string, most int) (int, bool) {
	n, err := strconv.Atoi(value)
	return n, err == nil && n >= 0 && n <= most && strconv.Itoa(n) == value
}

// memoryOf is how much of a device with so much memory, in MiB, a process takes.
func (b behaviour) memoryOf(deviceMiB int64) int64 {
	if b.memoryMiB >= 0 {
		return b.memoryMiB
	}
	return deviceMiB * 9 / 10
}
