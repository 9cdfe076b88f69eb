// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// StopLimiterConfigMapName is the name of the ConfigMap, in Sluice's namespace, with the
// state of the stop limiter. It has one key for each department in which the limiter was
// engaged, with a StopLimiterState in JSON.
const StopLimiterConfigMapName = "sluice-stop-limiter"

// StopLimiterState is the state of the stop limiter in a department. Times are policy time.
// An administrator writes ReleasedUntil; lifecycle writes the other fields.
type StopLimiterState struct {
	// EngagedAt is when the limiter was last engaged; zero for never.
	EngagedAt time.Time `json:"engagedAt,omitzero"`
	// Due is the number of the Running workloads whose end was brought forward and would have
	// come within the window.
	Due int `json:"stopsDue,omitzero"`
	// Running is the number of the department's workloads that ran at EngagedAt.
	Running int `json:"runningWorkloads,omitzero"`
	// ReleasedUntil is the end of the last release by an administrator; zero for never.
	ReleasedUntil time.Time `json:"releasedUntil,omitzero"`
}

// StopLimiterDepartments returns the departments that the ConfigMap has a state of, sorted.
func StopLimiterDepartments(object *corev1.ConfigMap) []string {
	return slices.Sorted(maps.Keys(object.Data))
}

// ParseStopLimiterState returns the state of a department. A missing or malformed one is
// zero, so that the limiter counts again.
func ParseStopLimiterState(object *corev1.ConfigMap, department string) StopLimiterState {
	var state StopLimiterState
	if err := json.Unmarshal([]byte(object.Data[department]), &state); err != nil {
		return StopLimiterState{}
	}
	state.EngagedAt, state.ReleasedUntil = state.EngagedAt.UTC(), state.ReleasedUntil.UTC()
	state.Due, state.Running = max(0, state.Due), max(0, state.Running)
	return state
}

// Store sets the state of a department in the ConfigMap.
func (s StopLimiterState) Store(object *corev1.ConfigMap, department string) {
	raw, err := json.Marshal(s)
	if err != nil {
		return // cannot happen: times of the years 0 to 9999, and numbers
	}
	if object.Data == nil {
		object.Data = map[string]string{}
	}
	object.Data[department] = string(raw)
}

// IsEngaged reports whether the limiter was engaged after its last release.
func (s StopLimiterState) IsEngaged() bool {
	return !s.EngagedAt.IsZero() && !s.EngagedAt.Before(s.ReleasedUntil)
}

// IsReleased reports whether a release is in force at a policy time. Then nothing engages
// the limiter.
func (s StopLimiterState) IsReleased(now time.Time) bool { return now.Before(s.ReleasedUntil) }
