// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"testing"

	"sluice.dev/api/v1alpha1"
)

func TestUnsupportedPreemption(t *testing.T) {
	for _, test := range []struct {
		scheduler v1alpha1.Scheduler
		sharing   v1alpha1.Sharing
		want      string
	}{
		{v1alpha1.SchedulerKube, v1alpha1.SharingMIG, ""},
		{v1alpha1.SchedulerKueue, v1alpha1.SharingMIG, ""},
		{v1alpha1.SchedulerKAI, v1alpha1.SharingMIG, ""},
		{v1alpha1.SchedulerKube, v1alpha1.SharingNone, "spec.preemption"},
	} {
		pool := &v1alpha1.NodePool{Spec: v1alpha1.NodePoolSpec{Scheduler: test.scheduler, Sharing: test.sharing, Preemption: &v1alpha1.PreemptionSpec{}}}
		fields := UnsupportedInNodePool(pool)
		got := ""
		if len(fields) > 0 {
			got = fields[0].Path
		}
		if got != test.want || len(fields) > 1 {
			t.Errorf("%s with %s: %v, want %q", test.sharing, test.scheduler, fields, test.want)
		}
	}
}
