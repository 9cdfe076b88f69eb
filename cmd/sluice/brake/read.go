// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package brake

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/clocks"
)

// Report is the brake as it is shown. Times are policy time, in UTC.
type Report struct {
	Now time.Time `json:"now"`
	// Engaged is true while no workload is stopped.
	Engaged bool `json:"engaged"`
	// EngagedAt is when it was engaged last; nil for never.
	EngagedAt *time.Time `json:"engagedAt,omitempty"`
	// Due is how many of the Running workloads were to be stopped within an hour then.
	Due     int `json:"due,omitempty"`
	Running int `json:"running,omitempty"`
	// ReleasedUntil is until when it was released last; nil for never.
	ReleasedUntil *time.Time `json:"releasedUntil,omitempty"`
	// Released is true while nothing engages it.
	Released bool `json:"released"`
}

// Read reads the brake as of an instant of policy time. A brake that was never
// engaged is no error.
func Read(ctx context.Context, c client.Reader, now time.Time) (Report, error) {
	object, err := read(ctx, c)
	if err != nil {
		return Report{}, err
	}
	return reportOf(object, now), nil
}

func read(ctx context.Context, c client.Reader) (*corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: clocks.BrakeName}, object)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the brake: %w%s", err, whoMay(err))
	}
	return object, nil
}

func reportOf(object *corev1.ConfigMap, now time.Time) Report {
	state := clocks.BrakeStateOf(object)
	return Report{
		Now: now.UTC().Truncate(time.Second), Engaged: state.Engaged(), EngagedAt: known(state.EngagedAt), Due: state.Due, Running: state.Running,
		ReleasedUntil: known(state.ReleasedUntil), Released: state.Released(now),
	}
}

func known(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// whoMay says whose business the brake is.
func whoMay(err error) string {
	if apierrors.IsForbidden(err) {
		return fmt.Sprintf("; the brake is for administrators of the cluster, who may get and patch the ConfigMap %s in namespace %s",
			clocks.BrakeName, v1alpha1.SystemNamespace)
	}
	return ""
}
