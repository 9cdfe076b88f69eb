// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// BrakeName is the name of the ConfigMap, in Sluice's own namespace, that says
// whether the brake is engaged.
const BrakeName = "sluice-brake"

// The keys of that ConfigMap. Times are policy time, RFC 3339. An administrator
// releases the brake by writing until when; lifecycle writes the others.
const (
	BrakeEngagedAt     = "engagedAt"
	BrakeDue           = "due"
	BrakeRunning       = "running"
	BrakeReleasedUntil = "releasedUntil"
)

// BrakeState is what that ConfigMap says.
type BrakeState struct {
	// EngagedAt is when the brake was engaged last; zero for never.
	EngagedAt time.Time
	// Due is how many of the Running workloads were to be stopped within the hour.
	Due int
	// Running is how many ran then.
	Running int
	// ReleasedUntil is until when an administrator released it last; zero for never.
	ReleasedUntil time.Time
}

// BrakeStateOf reads the ConfigMap. What is not there, or cannot be read, is zero:
// then it is counted anew whether the brake is to be engaged.
func BrakeStateOf(object *corev1.ConfigMap) BrakeState {
	return BrakeState{
		EngagedAt: instant(object.Data[BrakeEngagedAt]), ReleasedUntil: instant(object.Data[BrakeReleasedUntil]),
		Due: number(object.Data[BrakeDue]), Running: number(object.Data[BrakeRunning]),
	}
}

// Engaged tells whether the brake was engaged since it was last released.
func (s BrakeState) Engaged() bool {
	return !s.EngagedAt.IsZero() && !s.EngagedAt.Before(s.ReleasedUntil)
}

// Released tells whether the brake is released at an instant of policy time: then
// nothing engages it.
func (s BrakeState) Released(now time.Time) bool { return now.Before(s.ReleasedUntil) }

func instant(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
