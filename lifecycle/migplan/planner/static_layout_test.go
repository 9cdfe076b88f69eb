// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

// withStaticLayout makes the pool static with a layout.
func (s *testSnapshot) withStaticLayout(layout ...v1alpha1.MIGLayout) *testSnapshot {
	s.pools[0].layout = layout
	return s
}

func layoutOf(devices map[v1alpha1.MIGProfile]int32) v1alpha1.MIGLayout {
	return v1alpha1.MIGLayout{MIGDevices: devices}
}

func TestStaticLayouts(t *testing.T) {
	type m = map[v1alpha1.MIGProfile]int32
	tests := map[string]struct {
		scene    *testSnapshot
		want     []string
		messages []string
	}{
		"an empty GPU": {
			scene: newTestSnapshot(t, []string{"a100:"}).withStaticLayout(layoutOf(m{"3g.20gb": 1, "1g.5gb": 3})).withTaint("n1", bindSettleTime, 1),
			want:  []string{"write n1 [1g.5gb@1 1g.5gb@2 1g.5gb@3 3g.20gb@4]"},
		},
		"one set of media engines": {
			scene: newTestSnapshot(t, []string{"rtx:"}).withStaticLayout(layoutOf(m{"1g.24gb+me.all": 1, "2g.48gb+gfx": 1})),
			messages: []string{
				"GPU 0 of node n1 (RTX-PRO-6000) cannot be partitioned into 1g.24gb+me.all: 1, 2g.48gb+gfx: 1: no room for 2g.48gb+gfx",
			},
		},
		"the node is tainted first": {
			scene: newTestSnapshot(t, []string{"a100:"}).withStaticLayout(layoutOf(m{"7g.40gb": 1})), want: []string{"taint n1"},
		},
		"the same counts at other starts": {
			scene: newTestSnapshot(t, []string{"a100: 3g.20gb@0 1g.5gb@6"}).withStaticLayout(layoutOf(m{"3g.20gb": 1, "1g.5gb": 1})),
		},
		"instances in use stay": {
			scene: newTestSnapshot(t, []string{"a100: 3g.20gb@0!"}).withStaticLayout(layoutOf(m{"3g.20gb": 2})).withTaint("n1", bindSettleTime, 1),
			want:  []string{"write n1 [3g.20gb@0 3g.20gb@4]"},
		},
		"idle instances in the way are destroyed": {
			scene: newTestSnapshot(t, []string{"a100: 3g.20gb@0 1g.5gb@6!"}).
				withStaticLayout(layoutOf(m{"4g.20gb": 1, "1g.5gb": 1})).
				withTaint("n1", bindSettleTime, 1),
			want: []string{"write n1 [4g.20gb@0 1g.5gb@6]"},
		},
		"idle instances in the way are destroyed even if their profile is needed": {
			scene: newTestSnapshot(t, []string{"a100: 3g.20gb@0"}).
				withStaticLayout(layoutOf(m{"3g.20gb": 1, "4g.20gb": 1})).
				withTaint("n1", bindSettleTime, 1),
			want: []string{"write n1 [4g.20gb@0 3g.20gb@4]"},
		},
		"pods in the way": {
			scene:    newTestSnapshot(t, []string{"a100: 1g.5gb@0!"}).withStaticLayout(layoutOf(m{"7g.40gb": 1})),
			messages: []string{"GPU 0 of node n1 (A100-40GB) waits for pods to end whose instances do not fit into the layout"},
		},
		"an impossible layout": {
			scene:    newTestSnapshot(t, []string{"a100:"}).withStaticLayout(layoutOf(m{"4g.20gb": 1, "3g.20gb": 1, "1g.5gb": 1})),
			messages: []string{"GPU 0 of node n1 (A100-40GB) cannot be partitioned into 1g.5gb: 1, 3g.20gb: 1, 4g.20gb: 1: no room for 1g.5gb"},
		},
		"more media engines than the GPU has": {
			scene:    newTestSnapshot(t, []string{"a100:"}).withStaticLayout(layoutOf(m{"1g.5gb+me": 2})),
			messages: []string{"GPU 0 of node n1 (A100-40GB) cannot be partitioned into 1g.5gb+me: 2: no room for 1g.5gb+me"},
		},
		"another model's profile": {
			scene: newTestSnapshot(t, []string{"a100:"}).withStaticLayout(layoutOf(m{"1g.10gb": 1, "3g.40gb": 1})),
			messages: []string{"GPU 0 of node n1 (A100-40GB) cannot be partitioned into 3g.40gb: A100-40GB has no MIG profile \"3g.40gb\"; " +
				"it has [1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb]"},
		},
		"filters by index and device": {
			scene: newTestSnapshot(t, []string{"a100:", "a100:", "h100:"}).withStaticLayout(
				v1alpha1.MIGLayout{Devices: []int32{1}, MIGDevices: m{"7g.40gb": 1}},
				v1alpha1.MIGLayout{DeviceFilter: []string{"0x233010de"}, MIGDevices: m{"7g.80gb": 1}},
			).withTaint("n1", bindSettleTime, 1),
			want: []string{"write n1 1[7g.40gb@0] 2[7g.80gb@0]"},
		},
		"MIG mode disabled": {
			scene: newTestSnapshot(t, []string{"h100: 1g.10gb@0", "h100 off"}).
				withStaticLayout(v1alpha1.MIGLayout{MIGEnabled: ptr.To(false)}).
				withTaint("n1", bindSettleTime, 1),
			want: []string{"write n1 []off"},
		},
		"MIG mode stays while a pod holds an instance": {
			scene:    newTestSnapshot(t, []string{"h100: 1g.10gb@0!"}).withStaticLayout(v1alpha1.MIGLayout{MIGEnabled: ptr.To(false)}),
			messages: []string{"GPU 0 of node n1 (H100-80GB) waits for the pods to end that hold its instances"},
		},
		"out of MIG mode, which changes without a reset": {
			scene: newTestSnapshot(t, []string{"h100 off"}).withStaticLayout(layoutOf(m{"7g.80gb": 1})).withTaint("n1", bindSettleTime, 1),
			want:  []string{"write n1 [7g.80gb@0]"},
		},
		"out of MIG mode, which changes by reset": {
			scene: newTestSnapshot(t, []string{"a100 off"}).withStaticLayout(layoutOf(m{"7g.40gb": 1})),
			messages: []string{"GPU 0 of node n1 (A100-40GB) is not in MIG mode, which only a reset changes: " +
				"enable it (nvidia-smi -i 0 -mig 1) and reset the GPU, or set spec.mig.resets to WhenIdle or Drain"},
		},
		"demand does not change a static pool": {
			scene: newTestSnapshot(t, []string{"a100: 7g.40gb@0"}).withStaticLayout(layoutOf(m{"7g.40gb": 1})).withPendingPod("p", "3g.20gb"),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := decide(&tt.scene.snapshot, startTime)
			var got []string
			for i := range d.actions {
				got = append(got, d.actions[i].describe())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if diff := cmp.Diff(tt.messages, d.impossibleLayouts[0]); diff != "" {
				t.Errorf("messages: -want +got\n%s", diff)
			}
		})
	}
}
