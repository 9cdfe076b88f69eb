// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"time"

	"sluice.dev/test/cluster/kwok"
)

const (
	// ExitDelay is the annotation by which a pod's author says how long its
	// processes outlive it: "30s", "1h30m". It is read when the pod is admitted.
	ExitDelay = "sim.sluice.dev/exit-delay"

	defaultExitDelay = time.Second
)

// checkAnnotations returns an error that says which of the annotations for the
// simulation is wrong.
func checkAnnotations(annotations map[string]string) error {
	if value, set := annotations[ExitDelay]; set {
		if err := kwok.CheckDuration(ExitDelay, value); err != nil {
			return err
		}
	}
	return kwok.CheckAnnotations(annotations)
}

// exitDelay returns the time that the annotation says; the default where it is
// missing or wrong.
func exitDelay(annotations map[string]string) time.Duration {
	if value, set := annotations[ExitDelay]; set && kwok.CheckDuration(ExitDelay, value) == nil {
		if delay, err := time.ParseDuration(value); err == nil {
			return delay
		}
	}
	return defaultExitDelay
}
