// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
)

func TestResourceFactor(t *testing.T) {
	for factor, want := range map[v1alpha1.ResourceFactor][2]int64{
		"": {1000, 1500}, "1": {1000, 1000}, "0.5": {500, 500}, "999.999": {999999, 999999}, "Unlimited": {0, 0},
		"0": {1000, 1500}, "x": {1000, 1500}, "-1": {1000, 1500}, // refused by the schema
	} {
		spec := v1alpha1.NodePoolSpec{ResourceShares: v1alpha1.ResourceShares{NonPreemptible: factor, Preemptible: factor}}
		if got := [2]int64{spec.ResourceFactor(false), spec.ResourceFactor(true)}; got != want {
			t.Errorf("%q: %v, want %v", factor, got, want)
		}
	}
}

func TestMaxRequests(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	pool := &v1alpha1.NodePool{Status: v1alpha1.NodePoolStatus{NodeKinds: []v1alpha1.NodeKind{
		{Product: "A100", GPUs: 8, PerGPU: list("31875m", "3Mi")}, {Product: "T4", GPUs: 1, PerGPU: list("4", "16Gi")},
	}}}
	for name, tc := range map[string]struct {
		shares      v1alpha1.ResourceShares
		preemptible bool
		want        corev1.ResourceList
	}{
		"the least of both kinds": {want: list("4", "3Mi")},
		"preemptible":             {preemptible: true, want: list("6", "4Mi")},
		"a factor":                {shares: v1alpha1.ResourceShares{NonPreemptible: "0.333"}, want: list("1332m", "0")},
		"unlimited":               {shares: v1alpha1.ResourceShares{NonPreemptible: "Unlimited"}},
	} {
		pool.Spec.ResourceShares = tc.shares
		if diff := cmp.Diff(tc.want, pool.MaxRequests(tc.preemptible)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(v1alpha1.DefaultPerGPU(), (&v1alpha1.NodePool{}).MaxRequests(false)); diff != "" {
		t.Errorf("without nodes (-want +got):\n%s", diff)
	}
}
