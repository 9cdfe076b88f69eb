// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

// withStaticLayout has the pool cut as a layout says.
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
		scene *testSnapshot
		want  []string
		says  []string
	}{
		"an empty GPU": {
			scene: newTestSnapshot(t, []string{"a100:"}).withStaticLayout(layoutOf(m{"3g.20gb": 1, "1g.5gb": 3})).withTaint("n1", bindSettleTime, 1),
			want:  []string{"write n1 [1g.5gb@1 1g.5gb@2 1g.5gb@3 3g.20gb@4]"},
		},
		"it is tainted first": {
			scene: newTestSnapshot(t, []string{"a100:"}).withStaticLayout(layoutOf(m{"7g.40gb": 1})), want: []string{"taint n1"},
		},
		"it is so, in other places": {
			scene: newTestSnapshot(t, []string{"a100: 3g.20gb@0 1g.5gb@6"}).withStaticLayout(layoutOf(m{"3g.20gb": 1, "1g.5gb": 1})),
		},
		"what is in use stays": {
			scene: newTestSnapshot(t, []string{"a100: 3g.20gb@0!"}).withStaticLayout(layoutOf(m{"3g.20gb": 2})).withTaint("n1", bindSettleTime, 1),
			want:  []string{"write n1 [3g.20gb@0 3g.20gb@4]"},
		},
		"idle ones go where they are in the way": {
			scene: newTestSnapshot(t, []string{"a100: 3g.20gb@0 1g.5gb@6!"}).withStaticLayout(layoutOf(m{"4g.20gb": 1, "1g.5gb": 1})).withTaint("n1", bindSettleTime, 1),
			want:  []string{"write n1 [4g.20gb@0 1g.5gb@6]"},
		},
		"even of a kind that is wanted": {
			scene: newTestSnapshot(t, []string{"a100: 3g.20gb@0"}).withStaticLayout(layoutOf(m{"3g.20gb": 1, "4g.20gb": 1})).withTaint("n1", bindSettleTime, 1),
			want:  []string{"write n1 [4g.20gb@0 3g.20gb@4]"},
		},
		"until pods have ended": {
			scene: newTestSnapshot(t, []string{"a100: 1g.5gb@0!"}).withStaticLayout(layoutOf(m{"7g.40gb": 1})),
			says:  []string{"GPU 0 of node n1 (A100-40GB) waits until pods end that have instances which the layout has no place for"},
		},
		"it cannot be": {
			scene: newTestSnapshot(t, []string{"a100:"}).withStaticLayout(layoutOf(m{"4g.20gb": 1, "3g.20gb": 1, "1g.5gb": 1})),
			says:  []string{"GPU 0 of node n1 (A100-40GB) cannot be cut into 1g.5gb: 1, 3g.20gb: 1, 4g.20gb: 1: there is no room for 1g.5gb"},
		},
		"more media engines than there are": {
			scene: newTestSnapshot(t, []string{"a100:"}).withStaticLayout(layoutOf(m{"1g.5gb+me": 2})),
			says:  []string{"GPU 0 of node n1 (A100-40GB) cannot be cut into 1g.5gb+me: 2: there is no room for 1g.5gb+me"},
		},
		"another board's profile": {
			scene: newTestSnapshot(t, []string{"a100:"}).withStaticLayout(layoutOf(m{"1g.10gb": 1, "3g.40gb": 1})),
			says: []string{"GPU 0 of node n1 (A100-40GB) cannot be cut into 3g.40gb: A100-40GB has no MIG profile \"3g.40gb\"; " +
				"it has [1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb]"},
		},
		"by index, and by kind": {
			scene: newTestSnapshot(t, []string{"a100:", "a100:", "h100:"}).withStaticLayout(
				v1alpha1.MIGLayout{Devices: []int32{1}, MIGDevices: m{"7g.40gb": 1}},
				v1alpha1.MIGLayout{DeviceFilter: []string{"0x233010de"}, MIGDevices: m{"7g.80gb": 1}},
			).withTaint("n1", bindSettleTime, 1),
			want: []string{"write n1 1[7g.40gb@0] 2[7g.80gb@0]"},
		},
		"left whole": {
			scene: newTestSnapshot(t, []string{"h100: 1g.10gb@0", "h100 off"}).withStaticLayout(v1alpha1.MIGLayout{MIGEnabled: ptr.To(false)}).withTaint("n1", bindSettleTime, 1),
			want:  []string{"write n1 []off"},
		},
		"not while somebody has a part": {
			scene: newTestSnapshot(t, []string{"h100: 1g.10gb@0!"}).withStaticLayout(v1alpha1.MIGLayout{MIGEnabled: ptr.To(false)}),
			says:  []string{"GPU 0 of node n1 (H100-80GB) waits until the pods end that have its instances"},
		},
		"out of MIG mode, which changes at once": {
			scene: newTestSnapshot(t, []string{"h100 off"}).withStaticLayout(layoutOf(m{"7g.80gb": 1})).withTaint("n1", bindSettleTime, 1),
			want:  []string{"write n1 [7g.80gb@0]"},
		},
		"out of MIG mode, which does not": {
			scene: newTestSnapshot(t, []string{"a100 off"}).withStaticLayout(layoutOf(m{"7g.40gb": 1})),
			says: []string{"GPU 0 of node n1 (A100-40GB) is not in MIG mode, which only a reset changes: " +
				"enable it (nvidia-smi -i 0 -mig 1) and reset the GPU, or set spec.mig.resets to WhenIdle or Drain"},
		},
		"nothing is cut for pods": {
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
			if diff := cmp.Diff(tt.says, d.impossibleLayouts[0]); diff != "" {
				t.Errorf("it says: -want +got\n%s", diff)
			}
		})
	}
}
