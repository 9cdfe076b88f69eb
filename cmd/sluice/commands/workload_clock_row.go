// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// ClockRow is one workload as of an instant. Lengths are in whole seconds of policy
// time.
type ClockRow struct {
	Namespace string `json:"namespace"`
	// Kind and Name are the workload's.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Project is empty where it cannot be known.
	Project string                `json:"project,omitempty"`
	Type    v1alpha1.WorkloadType `json:"type,omitempty"`
	State   v1alpha1.ClockState   `json:"state,omitempty"`
	// LimitSeconds is the limit in running time; absent without one.
	LimitSeconds *int64 `json:"limitSeconds,omitempty"`
	// RanSeconds is the running time, the open interval included.
	RanSeconds int64 `json:"ranSeconds"`
	// LeftSeconds is how long it may run on; absent without an end.
	LeftSeconds *int64 `json:"leftSeconds,omitempty"`
	// IdleSeconds is how long no GPU of it was used; absent while one is, and where
	// that cannot be known.
	IdleSeconds *int64 `json:"idleSeconds,omitempty"`
	// IdleUnknown is true where the use cannot be known.
	IdleUnknown bool `json:"idleUnknown,omitempty"`
	// EndsAt is when it ends, if its time runs on; for one that was stopped when it
	// was. Absent while its time stands still.
	EndsAt *time.Time `json:"ends,omitempty"`
	// Reason is why it ends, or ended.
	Reason v1alpha1.EndReason `json:"because,omitempty"`
	// DryRun is true where it would have been stopped, and its department only looks.
	DryRun bool `json:"dryRun,omitempty"`
	// StoppedUntil is when one that was stopped may start again.
	StoppedUntil *time.Time `json:"stoppedUntil,omitempty"`
	CreatedBy    string     `json:"createdBy,omitempty"`
}

// NewClockRows are the workloads of clocks as of the instant now of policy time, what
// ends soonest first. The projects of namespaces are looked up in projects.
func NewClockRows(clocks []v1alpha1.WorkloadClock, projects map[string]string, now time.Time) []ClockRow {
	rows := make([]ClockRow, 0, len(clocks))
	for i := range clocks {
		row := newClockRow(&clocks[i], now)
		row.Project = projects[row.Namespace]
		rows = append(rows, row)
	}
	sortClockRows(rows)
	return rows
}

// newClockRow is a clock as of now. While its time stands still the instant of its end is
// not known, but what is left of its limit is.
func newClockRow(clock *v1alpha1.WorkloadClock, now time.Time) ClockRow {
	status := &clock.Status
	row := ClockRow{
		Namespace: clock.Namespace, Kind: clock.Spec.Root.Kind, Name: clock.Spec.Root.Name,
		Type: status.WorkloadType, State: status.State, CreatedBy: status.CreatedBy,
		RanSeconds: status.AccumulatedSeconds, IdleUnknown: meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionIdleUnknown),
		DryRun: meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionDryRun),
	}
	runs := status.State == v1alpha1.ClockStateRunning
	if runs && status.RunningSince != nil {
		row.RanSeconds += wholeSeconds(now.Sub(status.RunningSince.Time))
	}
	if runs && status.IdleSince != nil && !row.IdleUnknown {
		row.IdleSeconds = pointerTo(wholeSeconds(now.Sub(status.IdleSince.Time)))
	}
	if limit := status.Limit; limit != nil {
		row.LimitSeconds = pointerTo(wholeSeconds(limit.InForce.Length()))
		row.LeftSeconds = pointerTo(max(0, *row.LimitSeconds-row.RanSeconds))
	}
	if status.Deadline != nil && runs {
		row.Reason = status.Deadline.Reason
		row.EndsAt = utcTime(status.Deadline.At.Time)
		row.LeftSeconds = pointerTo(wholeSeconds(status.Deadline.At.Sub(now)))
	}
	if stop := status.Stopped; stop != nil && status.State == v1alpha1.ClockStateStopped {
		row.Reason, row.EndsAt, row.LeftSeconds = stop.Reason, utcTime(stop.At.Time), nil
		if status.RunningSince != nil { // its pods still go
			row.RanSeconds += wholeSeconds(stop.At.Sub(status.RunningSince.Time))
		}
		if stop.Until != nil {
			row.StoppedUntil = utcTime(stop.Until.Time)
		}
	}
	return row
}

// wholeSeconds are the whole seconds of a length, and none of one below zero: an
// object may be a moment ahead of the reader's clock.
func wholeSeconds(length time.Duration) int64 { return int64(max(0, length) / time.Second) }

func utcTime(t time.Time) *time.Time { return pointerTo(t.UTC()) }

func pointerTo[T any](value T) *T { return &value }

// sortClockRows puts what ends soonest first: those whose time runs by their end; then
// those whose time stands still by what is left; then those without an end; last
// what was stopped, the latest first.
func sortClockRows(rows []ClockRow) {
	slices.SortStableFunc(rows, func(a, b ClockRow) int {
		return cmp.Or(
			cmp.Compare(clockSortRank(a), clockSortRank(b)),
			cmp.Compare(clockSortKey(a), clockSortKey(b)),
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

func clockSortRank(r ClockRow) int {
	switch {
	case r.State == v1alpha1.ClockStateStopped:
		return 3
	case r.EndsAt != nil:
		return 0
	case r.LeftSeconds != nil:
		return 1
	default:
		return 2
	}
}

// clockSortKey orders rows of the same rank.
func clockSortKey(r ClockRow) int64 {
	switch {
	case r.State == v1alpha1.ClockStateStopped && r.EndsAt != nil:
		return -r.EndsAt.Unix()
	case r.EndsAt != nil:
		return r.EndsAt.Unix()
	case r.LeftSeconds != nil:
		return *r.LeftSeconds
	default:
		return math.MaxInt64
	}
}

// WriteClockTable prints rows for a person, times in zone. With namespaces it has a column
// for them.
func WriteClockTable(output io.Writer, rows []ClockRow, namespaces bool, zone *time.Location) error {
	table := printer.Table{
		Headers: []string{"WORKLOAD", "PROJECT", "TYPE", "STATE", "LIMIT", "RUNTIME", "LEFT", "IDLE", "ENDS", "REASON"},
		Right:   []string{"LIMIT", "RUNTIME", "LEFT", "IDLE"},
	}
	if namespaces {
		table.Headers = append([]string{"NAMESPACE"}, table.Headers...)
	}
	for _, r := range rows {
		idle := formatSeconds(r.IdleSeconds)
		if r.IdleUnknown {
			idle = "unknown"
		}
		ends := ""
		if r.EndsAt != nil {
			ends = printer.FormatMinute(*r.EndsAt, zone)
		}
		because := string(r.Reason)
		if r.DryRun {
			because += " (dry run)"
		}
		cells := []string{
			r.Kind + "/" + r.Name, r.Project, string(r.Type), string(r.State), formatSeconds(r.LimitSeconds),
			formatSeconds(&r.RanSeconds), formatSeconds(r.LeftSeconds), idle, ends, because,
		}
		if namespaces {
			cells = append([]string{r.Namespace}, cells...)
		}
		table.Rows = append(table.Rows, cells)
	}
	return table.Write(output)
}

// ClockDocument is the form of the rows for a machine.
type ClockDocument struct {
	// Now is the instant of policy time that they are as of.
	Now time.Time `json:"now"`
	// Clocks are the rows; never null.
	Clocks []ClockRow `json:"clocks"`
}

// NoClocksMessage is what to say where there is no row.
func NoClocksMessage(namespace string) string {
	if namespace == "" {
		return "no workload has a clock"
	}
	return fmt.Sprintf("no workload in namespace %s has a clock: none with a GPU has run there", namespace)
}

func formatSeconds(length *int64) string {
	if length == nil {
		return ""
	}
	// Beyond what a Duration holds, which no clock reaches, the most is shown.
	const most = int64(1<<63-1) / int64(time.Second)
	return printer.FormatDuration(time.Duration(min(*length, most)) * time.Second)
}
