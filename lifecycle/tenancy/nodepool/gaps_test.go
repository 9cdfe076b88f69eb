// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
)

func TestGaps(t *testing.T) {
	for name, tt := range map[string]struct {
		spec   v1alpha1.NodePoolSpec
		driver string
		mixed  []string
		want   []string
	}{
		"whole GPUs":                 {spec: v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingNone}},
		"MIG":                        {spec: v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingMIG}, mixed: []string{"a"}},
		"preemption, kube-scheduler": {spec: v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingMIG, Scheduler: v1alpha1.SchedulerKube, Preemption: &v1alpha1.PreemptionSpec{}}},
		"preemption, KAI": {
			spec: v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingMIG, Scheduler: v1alpha1.SchedulerKAI, Preemption: &v1alpha1.PreemptionSpec{}},
			want: []string{"RoomNotReserved", "CPUPodsStay"},
		},
		"MPS":                       {spec: v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingMPS}, want: []string{"MemoryPerProcess", "IdleCompute"}},
		"strict MPS, newest driver": {spec: v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingMPS, Compute: v1alpha1.ComputeStrict}, driver: "615.1", want: []string{"MemoryPerProcess"}},
		"MPS with MIG strategy mixed": {
			spec:  v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingMPS, Compute: v1alpha1.ComputeStrict},
			mixed: []string{"a", "b"}, want: []string{"MIGStrategyMixed", "MemoryPerProcess"},
		},
		"time slices":                     {spec: v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingTimeSlicing}, driver: "610.1", want: []string{"MemoryIsolation"}},
		"time slices, newest driver":      {spec: v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingTimeSlicing}, driver: "615.1"},
		"time slices, limits not used":    {spec: v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingTimeSlicing, DriverMemoryLimits: v1alpha1.DriverMemoryLimitsNever}, driver: "615.1", want: []string{"MemoryIsolation"}},
		"KAI":                             {spec: v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingKAI}, want: []string{"MemoryIsolation"}},
		"KAI, no pods without GPUs":       {spec: v1alpha1.NodePoolSpec{Scheduler: v1alpha1.SchedulerKAI, CPUPods: v1alpha1.CPUPodsRefuse}},
		"KAI, pods without GPUs":          {spec: v1alpha1.NodePoolSpec{Scheduler: v1alpha1.SchedulerKAI, CPUPods: v1alpha1.CPUPodsAllow}, want: []string{"CPUPodsStay"}},
		"burst":                           {spec: v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingKAI, Burst: v1alpha1.BurstAllow}, want: []string{"MemoryIsolation", "BurstGuarantee", "BurstWaiting", "BurstSwapping"}},
		"burst up to the driver's limits": {spec: v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingTimeSlicing, Burst: v1alpha1.BurstAllow}, driver: "620.5", want: []string{"BurstWaiting", "BurstSwapping"}},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &v1alpha1.NodePool{Spec: tt.spec, Status: v1alpha1.NodePoolStatus{DriverVersion: tt.driver}}
			var got []string
			for _, gap := range gapsOf(pool, Observation{MixedMIGNodes: tt.mixed}) {
				got = append(got, gap.reason)
				if gap.message == "" || strings.Contains(gap.message, ";  ") {
					t.Errorf("%s says %q", gap.reason, gap.message)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
