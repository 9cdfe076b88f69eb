// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"testing"

	"sluice.dev/api/v1alpha1"
)

func TestGPUModelsKnown(t *testing.T) {
	board := func(gpus int32, profiles ...v1alpha1.MIGProfile) v1alpha1.GPUModel {
		return v1alpha1.GPUModel{GPUs: gpus, MIGProfiles: profiles}
	}
	for name, tc := range map[string]struct {
		sharing v1alpha1.Sharing
		status  v1alpha1.NodePoolStatus
		want    bool
	}{
		"whole GPUs":        {v1alpha1.SharingNone, v1alpha1.NodePoolStatus{GPUs: 8, Products: []v1alpha1.GPUModel{board(8)}}, true},
		"an empty pool":     {v1alpha1.SharingMIG, v1alpha1.NodePoolStatus{}, true},
		"no agent has said": {v1alpha1.SharingMIG, v1alpha1.NodePoolStatus{GPUs: 8, Products: []v1alpha1.GPUModel{board(8)}}, false},
		"one of two has":    {v1alpha1.SharingMIG, v1alpha1.NodePoolStatus{GPUs: 16, Products: []v1alpha1.GPUModel{board(8), board(8, "1g.5gb")}}, false},
		"all have":          {v1alpha1.SharingMIG, v1alpha1.NodePoolStatus{GPUs: 8, Products: []v1alpha1.GPUModel{board(8, "1g.5gb")}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &v1alpha1.NodePool{Spec: v1alpha1.NodePoolSpec{Sharing: tc.sharing}, Status: tc.status}
			if got := gpuModelsKnown(pool); got != tc.want {
				t.Errorf("known = %v, want %v", got, tc.want)
			}
		})
	}
}
