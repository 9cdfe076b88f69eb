// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kwok

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// What a pod's author may write on it. The stages read the same names.
const (
	// RunFor is how long the pod's containers run before they end with exit code
	// 0: a Go duration such as "30s" or "1h30m". Without it they run until the
	// pod is deleted.
	RunFor = "sim.sluice.dev/run-for"
	// FailAfter is how long the pod's containers run before they fail, as
	// RunFor. Of the two, only one may be set.
	FailAfter = "sim.sluice.dev/fail-after"
	// ExitCode is what containers end with after FailAfter: 1 to 255, default 1.
	ExitCode = "sim.sluice.dev/exit-code"
)

// durations are those that the stages' jq can read; signs and exponents would
// be beyond it.
var durations = regexp.MustCompile(`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`)

// CheckAnnotations returns an error that says which of the annotations above is
// wrong, and how it would be right. The stages ignore a pod's wrong ones.
func CheckAnnotations(annotations map[string]string) error {
	runFor, runs := annotations[RunFor]
	failAfter, fails := annotations[FailAfter]
	code, coded := annotations[ExitCode]
	if runs {
		if err := CheckDuration(RunFor, runFor); err != nil {
			return err
		}
	}
	if fails {
		if err := CheckDuration(FailAfter, failAfter); err != nil {
			return err
		}
	}
	switch {
	case runs && fails:
		return fmt.Errorf("annotations %s and %s: set only one: a pod either completes or fails", RunFor, FailAfter)
	case coded && !fails:
		return fmt.Errorf("annotation %s: has no effect without %s", ExitCode, FailAfter)
	case coded:
		if n, err := strconv.Atoi(code); err != nil || n < 1 || n > 255 || strconv.Itoa(n) != code {
			return fmt.Errorf("annotation %s: %q is not an exit code of a failure: write a number from 1 to 255", ExitCode, code)
		}
	}
	return nil
}

// CheckDuration returns an error that names the annotation where value is not a
// duration as they are written here: 30s, 1h30m, 0.5s, at most 100 years.
func CheckDuration(annotation, value string) error {
	if durations.MatchString(value) {
		if d, err := time.ParseDuration(value); err == nil && d < 100*365*24*time.Hour {
			return nil
		}
	}
	return fmt.Errorf("annotation %s: %q is not a duration: write it like 30s or 1h30m", annotation, value)
}
