// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"sluice.dev/api/v1alpha1"
)

// Row is one workload as of an instant. Lengths are in whole seconds of policy
// time.
type Row struct {
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
	// Ends is when it ends, if its time runs on; for one that was stopped when it
	// was. Absent while its time stands still.
	Ends *time.Time `json:"ends,omitempty"`
	// Because is why it ends, or ended.
	Because v1alpha1.EndReason `json:"because,omitempty"`
	// DryRun is true where it would have been stopped, and its department only looks.
	DryRun bool `json:"dryRun,omitempty"`
	// StoppedUntil is when one that was stopped may start again.
	StoppedUntil *time.Time `json:"stoppedUntil,omitempty"`
	CreatedBy    string     `json:"createdBy,omitempty"`
}

// Rows are the workloads of clocks as of the instant now of policy time, what
// ends soonest first. The projects of namespaces are looked up in projects.
func Rows(clocks []v1alpha1.WorkloadClock, projects map[string]string, now time.Time) []Row {
	rows := make([]Row, 0, len(clocks))
	for i := range clocks {
		row := rowOf(&clocks[i], now)
		row.Project = projects[row.Namespace]
		rows = append(rows, row)
	}
	arrange(rows)
	return rows
}

// rowOf is a clock as of now. While its time stands still the instant of its end is
// not known, but what is left of its limit is.
func rowOf(clock *v1alpha1.WorkloadClock, now time.Time) Row {
	status := &clock.Status
	row := Row{
		Namespace: clock.Namespace, Kind: clock.Spec.Root.Kind, Name: clock.Spec.Root.Name,
		Type: status.WorkloadType, State: status.State, CreatedBy: status.CreatedBy,
		RanSeconds: status.AccumulatedSeconds, IdleUnknown: meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionIdleUnknown),
		DryRun: meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionDryRun),
	}
	runs := status.State == v1alpha1.ClockStateRunning
	if runs && status.RunningSince != nil {
		row.RanSeconds += seconds(now.Sub(status.RunningSince.Time))
	}
	if runs && status.IdleSince != nil && !row.IdleUnknown {
		row.IdleSeconds = pointer(seconds(now.Sub(status.IdleSince.Time)))
	}
	if limit := status.Limit; limit != nil {
		row.LimitSeconds = pointer(seconds(limit.InForce.Length()))
		row.LeftSeconds = pointer(max(0, *row.LimitSeconds-row.RanSeconds))
	}
	if status.Deadline != nil && runs {
		row.Because = status.Deadline.Reason
		row.Ends = utc(status.Deadline.At.Time)
		row.LeftSeconds = pointer(seconds(status.Deadline.At.Sub(now)))
	}
	if stop := status.Stopped; stop != nil && status.State == v1alpha1.ClockStateStopped {
		row.Because, row.Ends, row.LeftSeconds = stop.Reason, utc(stop.At.Time), nil
		if status.RunningSince != nil { // its pods still go
			row.RanSeconds += seconds(stop.At.Sub(status.RunningSince.Time))
		}
		if stop.Until != nil {
			row.StoppedUntil = utc(stop.Until.Time)
		}
	}
	return row
}

// seconds are the whole seconds of a length, and none of one below zero: an
// object may be a moment ahead of the reader's clock.
func seconds(length time.Duration) int64 { return int64(max(0, length) / time.Second) }

func utc(t time.Time) *time.Time { return pointer(t.UTC()) }

func pointer[T any](value T) *T { return &value }
