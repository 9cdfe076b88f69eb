// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strconv"

	"sluice.dev/api/period"
)

// Loosened lists the limits of a project's own that a change takes away or makes
// looser, for each type of workload, in the order of types and of fields, whatever
// its department has now. A value that is left open binds least, since the
// department's holds then. Of each, Value is what the type has after the change, ""
// where that is left open, and Bound what it had before.
func Loosened(before, after map[WorkloadType]WorkloadLimits) []Loosening {
	var found []Loosening
	for _, t := range WorkloadTypes {
		was, is := entry(before, t), entry(after, t)
		add := func(name, value, bound string) {
			found = append(found, Loosening{Type: t, Field: name, Value: value, Bound: bound})
		}
		if d := was.MaxRuntime; d != nil && (is.MaxRuntime == nil || shorter(*d, *is.MaxRuntime)) {
			add("maxRuntime", text(is.MaxRuntime), d.String())
		}
		if d := was.IdleTimeout; d != nil && (is.IdleTimeout == nil || shorter(*d, *is.IdleTimeout)) {
			add("idleTimeout", text(is.IdleTimeout), d.String())
		}
		if was.Clock == ClockRunning && is.Clock != ClockRunning {
			add("clock", string(is.Clock), string(was.Clock))
		}
		if d := was.ResetAfter; d != nil && (is.ResetAfter == nil || is.ResetAfter.Length() < d.Length()) {
			add("resetAfter", text(is.ResetAfter), d.String())
		}
		if d := was.DryRun; d != nil && !*d && (is.DryRun == nil || *is.DryRun) {
			value := ""
			if is.DryRun != nil {
				value = strconv.FormatBool(*is.DryRun)
			}
			add("dryRun", value, strconv.FormatBool(*d))
		}
	}
	return found
}

// text is the duration as it was written; "" where none was.
func text(d *period.Duration) string {
	if d == nil {
		return ""
	}
	return d.String()
}
