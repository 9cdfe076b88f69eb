// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Stopping says how workloads are stopped whose time is over.
type Stopping struct {
	// Brake keeps very many from being stopped at once.
	Brake Brake `json:"brake,omitempty"`
	// DeleteUnknownKinds has a workload deleted, with its pods, that is of a kind
	// which Sluice does not know and which has neither spec.suspend nor a scale
	// subresource. Default false: that it cannot be stopped is only reported.
	DeleteUnknownKinds bool `json:"deleteUnknownKinds,omitempty"`
}

// Brake is how many workloads may be stopped within an hour of policy time. What
// is more than both engages the brake: then none is stopped until an administrator
// releases it.
type Brake struct {
	// Percent is the share of the running workloads, 0 to 100. Default 30; with 100
	// the brake is never engaged.
	Percent *int `json:"percent,omitempty"`
	// Workloads is how many, at least 0. Default 50.
	Workloads *int `json:"workloads,omitempty"`
}

// The brake where nobody sets it.
const (
	defaultBrakePercent   = 30
	defaultBrakeWorkloads = 50
)

func (b *Brake) fill() {
	if b.Percent == nil {
		b.Percent = ptr.To(defaultBrakePercent)
	}
	if b.Workloads == nil {
		b.Workloads = ptr.To(defaultBrakeWorkloads)
	}
}

func (s *Stopping) validate(path *field.Path) (errs field.ErrorList) {
	if p := ptr.Deref(s.Brake.Percent, 0); p < 0 || p > 100 {
		errs = append(errs, field.Invalid(path.Child("brake", "percent"), p, "want 0 to 100"))
	}
	if n := ptr.Deref(s.Brake.Workloads, 0); n < 0 {
		errs = append(errs, field.Invalid(path.Child("brake", "workloads"), n, "want 0 or more"))
	}
	return errs
}
