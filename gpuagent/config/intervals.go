// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Intervals say how often what is looked at, in machine time.
type Intervals struct {
	// Look is how often the GPUs, their processes and the kubelet are asked, 200ms to
	// 1m. What changes in the cluster is acted on at once. Default 2s.
	Look metav1.Duration `json:"look,omitempty"`
	// Retry is the longest wait before something is tried again that failed: a driver
	// that is not there, a layout that is in use. The first is a second. 1s to 10m;
	// default 30s.
	Retry metav1.Duration `json:"retry,omitempty"`
	// Stuck is after how long a call of the driver that has not returned makes the
	// agent unhealthy, so that it is started again. 10s to 30m; default 2m.
	Stuck metav1.Duration `json:"stuck,omitempty"`
}

// The intervals where nobody sets them.
const (
	defaultLook  = 2 * time.Second
	defaultRetry = 30 * time.Second
	defaultStuck = 2 * time.Minute
)

func (i *Intervals) fill() {
	for at, value := range map[*metav1.Duration]time.Duration{
		&i.Look:  defaultLook,
		&i.Retry: defaultRetry,
		&i.Stuck: defaultStuck,
	} {
		if at.Duration == 0 {
			at.Duration = value
		}
	}
}

func (i *Intervals) validate(path *field.Path) (errs field.ErrorList) {
	for _, each := range []struct {
		name        string
		value       metav1.Duration
		least, most time.Duration
	}{
		{"look", i.Look, 200 * time.Millisecond, time.Minute},
		{"retry", i.Retry, time.Second, 10 * time.Minute},
		{"stuck", i.Stuck, 10 * time.Second, 30 * time.Minute},
	} {
		if each.value.Duration < each.least || each.value.Duration > each.most {
			errs = append(errs, field.Invalid(path.Child(each.name), each.value.Duration.String(), "want "+each.least.String()+" to "+each.most.String()))
		}
	}
	return errs
}
