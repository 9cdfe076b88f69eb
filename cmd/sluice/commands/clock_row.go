// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// clockDocument is the JSON output of clocks.
type clockDocument struct {
	// Now is the policy time of the rows.
	Now time.Time `json:"now"`
	// Clocks are never null.
	Clocks []clockRow `json:"clocks"`
}

// clockRow is the clock of one workload. Durations are whole seconds of policy time.
type clockRow struct {
	Namespace string `json:"namespace"`
	// Kind and Name are the workload's.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Project is empty if it is unknown.
	Project string                `json:"project,omitempty"`
	Type    v1alpha1.WorkloadType `json:"type,omitempty"`
	State   v1alpha1.ClockState   `json:"state,omitempty"`
	// LimitSeconds is the limit on the running time; nil if there is no limit.
	LimitSeconds *int64 `json:"limitSeconds,omitempty"`
	// RanSeconds is the running time until now.
	RanSeconds int64 `json:"ranSeconds"`
	// LeftSeconds is the time until the end; nil if no end is planned.
	LeftSeconds *int64 `json:"leftSeconds,omitempty"`
	// IdleSeconds is the time since a GPU was used; nil while one is used, and if
	// the use is unknown.
	IdleSeconds *int64 `json:"idleSeconds,omitempty"`
	IdleUnknown bool   `json:"idleUnknown,omitempty"`
	// EndsAt is the deadline of a running workload, or the time at which a stopped
	// workload was stopped. It is nil while the workload is paused.
	EndsAt *time.Time `json:"endsAt,omitempty"`
	// Reason is the reason for the end.
	Reason v1alpha1.EndReason `json:"reason,omitempty"`
	// DryRun reports whether the department only simulates the stop.
	DryRun bool `json:"dryRun,omitempty"`
	// StoppedUntil is the time from which a stopped workload may start again.
	StoppedUntil *time.Time `json:"stoppedUntil,omitempty"`
	CreatedBy    string     `json:"createdBy,omitempty"`
}

// newClockRows returns the rows of clocks at a policy time, the earliest end first.
// The map projects has the names of projects by namespace.
func newClockRows(clocks []v1alpha1.WorkloadClock, projects map[string]string, now time.Time) []clockRow {
	rows := make([]clockRow, 0, len(clocks))
	for i := range clocks {
		row := newClockRow(&clocks[i], now)
		row.Project = projects[row.Namespace]
		rows = append(rows, row)
	}
	sortClockRows(rows)
	return rows
}

func newClockRow(clock *v1alpha1.WorkloadClock, now time.Time) clockRow {
	status := &clock.Status
	row := clockRow{
		Namespace: clock.Namespace, Kind: clock.Spec.Root.Kind, Name: clock.Spec.Root.Name,
		Type: status.WorkloadType, State: status.State, CreatedBy: status.CreatedBy,
		RanSeconds:  status.AccumulatedSeconds,
		IdleUnknown: meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionIdleUnknown),
		DryRun:      meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionDryRun),
	}
	running := status.State == v1alpha1.ClockStateRunning
	if running && status.RunningSince != nil {
		row.RanSeconds += wholeSeconds(now.Sub(status.RunningSince.Time))
	}
	if running && status.IdleSince != nil && !row.IdleUnknown {
		row.IdleSeconds = ptr.To(wholeSeconds(now.Sub(status.IdleSince.Time)))
	}
	if limit := status.Limit; limit != nil {
		row.LimitSeconds = ptr.To(wholeSeconds(limit.InForce.Length()))
		if !row.hasEnded() {
			row.LeftSeconds = ptr.To(max(0, *row.LimitSeconds-row.RanSeconds))
		}
	}
	if status.Deadline != nil && running {
		row.Reason = status.Deadline.Reason
		row.EndsAt = optionalTime(&status.Deadline.At)
		row.LeftSeconds = ptr.To(wholeSeconds(status.Deadline.At.Sub(now)))
	}
	if stop := status.Stopped; stop != nil && row.isStopped() {
		row.Reason, row.EndsAt, row.LeftSeconds = stop.Reason, optionalTime(&stop.At), nil
		if status.RunningSince != nil { // its pods are still terminating
			row.RanSeconds += wholeSeconds(stop.At.Sub(status.RunningSince.Time))
		}
		row.StoppedUntil = optionalTime(stop.Until)
	}
	return row
}

// hasEnded reports whether the workload finished or was deleted.
func (r *clockRow) hasEnded() bool {
	return r.State == v1alpha1.ClockStateFinished || r.State == v1alpha1.ClockStateDeleted
}

// isStopped reports whether Sluice stopped the workload; its pods may still end.
func (r *clockRow) isStopped() bool {
	return r.State == v1alpha1.ClockStateStopped || r.State == v1alpha1.ClockStateStopping
}

// wholeSeconds returns the whole seconds of a duration, and 0 for a negative one:
// an object's clock may be ahead of this machine's.
func wholeSeconds(duration time.Duration) int64 { return int64(max(0, duration) / time.Second) }

// optionalTime returns a time in UTC, and nil for a zero time.
func optionalTime(at *metav1.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return ptr.To(at.UTC())
}

// sortClockRows sorts running workloads by their end, then paused ones by the time
// left, then those without an end, then stopped ones, the latest first, then those
// that finished or were deleted.
func sortClockRows(rows []clockRow) {
	slices.SortStableFunc(rows, func(a, b clockRow) int {
		rankA, keyA := clockSortKey(a)
		rankB, keyB := clockSortKey(b)
		return cmp.Or(
			cmp.Compare(rankA, rankB),
			cmp.Compare(keyA, keyB),
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

func clockSortKey(r clockRow) (rank int, key int64) {
	switch {
	case r.hasEnded():
		return 4, 0
	case r.isStopped() && r.EndsAt != nil:
		return 3, -r.EndsAt.Unix()
	case r.isStopped():
		return 3, math.MaxInt64
	case r.EndsAt != nil:
		return 0, r.EndsAt.Unix()
	case r.LeftSeconds != nil:
		return 1, *r.LeftSeconds
	default:
		return 2, math.MaxInt64
	}
}

// clockTable returns the table of rows, with times in zone.
func clockTable(rows []clockRow, namespaces bool, zone *time.Location) printer.Table {
	table := printer.Table{Columns: append([]printer.Column{{Name: "NAMESPACE", Hidden: !namespaces}},
		printer.Columns("WORKLOAD", "PROJECT", "TYPE", "STATE", "LIMIT", "RUNTIME", "LEFT", "IDLE", "ENDS", "REASON")...)}
	table.Columns = append(table.Columns, printer.Column{Name: "STOPPED UNTIL", Wide: true}, printer.Column{Name: "CREATED BY", Wide: true})
	for _, r := range rows {
		idle := formatSeconds(r.IdleSeconds)
		if r.IdleUnknown {
			idle = "unknown"
		}
		reason := string(r.Reason)
		if r.DryRun {
			reason += " (dry run)"
		}
		table.Rows = append(table.Rows, []string{
			r.Namespace, r.Kind + "/" + r.Name, r.Project, string(r.Type), string(r.State),
			formatSeconds(r.LimitSeconds), formatSeconds(&r.RanSeconds), formatSeconds(r.LeftSeconds), idle,
			formatOptionalMinute(r.EndsAt, zone), reason, formatOptionalMinute(r.StoppedUntil, zone), r.CreatedBy,
		})
	}
	return table
}

func formatOptionalMinute(at *time.Time, zone *time.Location) string {
	if at == nil {
		return ""
	}
	return printer.FormatMinute(*at, zone)
}

func formatSeconds(seconds *int64) string {
	if seconds == nil {
		return ""
	}
	const most = int64(math.MaxInt64) / int64(time.Second) // the longest Duration
	return printer.FormatDuration(time.Duration(min(*seconds, most)) * time.Second)
}
