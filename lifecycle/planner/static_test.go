// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

// laidOut has the pool cut as a layout says.
func (s *scene) laidOut(layout ...v1alpha1.MIGLayout) *scene {
	s.pools[0].layout = layout
	return s
}

func into(devices map[v1alpha1.MIGProfile]int32) v1alpha1.MIGLayout {
	return v1alpha1.MIGLayout{MIGDevices: devices}
}

func TestStaticLayouts(t *testing.T) {
	type m = map[v1alpha1.MIGProfile]int32
	tests := map[string]struct {
		scene *scene
		want  []string
		says  []string
	}{
		"an empty GPU": {
			scene: cluster(t, []string{"a100:"}).laidOut(into(m{"3g.20gb": 1, "1g.5gb": 3})).tainted("n1", settle, 1),
			want:  []string{"write n1 [1g.5gb@1 1g.5gb@2 1g.5gb@3 3g.20gb@4]"},
		},
		"it is tainted first": {
			scene: cluster(t, []string{"a100:"}).laidOut(into(m{"7g.40gb": 1})), want: []string{"taint n1"},
		},
		"it is so, in other places": {
			scene: cluster(t, []string{"a100: 3g.20gb@0 1g.5gb@6"}).laidOut(into(m{"3g.20gb": 1, "1g.5gb": 1})),
		},
		"what is in use stays": {
			scene: cluster(t, []string{"a100: 3g.20gb@0!"}).laidOut(into(m{"3g.20gb": 2})).tainted("n1", settle, 1),
			want:  []string{"write n1 [3g.20gb@0 3g.20gb@4]"},
		},
		"idle ones go where they are in the way": {
			scene: cluster(t, []string{"a100: 3g.20gb@0 1g.5gb@6!"}).laidOut(into(m{"4g.20gb": 1, "1g.5gb": 1})).tainted("n1", settle, 1),
			want:  []string{"write n1 [4g.20gb@0 1g.5gb@6]"},
		},
		"even of a kind that is wanted": {
			scene: cluster(t, []string{"a100: 3g.20gb@0"}).laidOut(into(m{"3g.20gb": 1, "4g.20gb": 1})).tainted("n1", settle, 1),
			want:  []string{"write n1 [4g.20gb@0 3g.20gb@4]"},
		},
		"until pods have ended": {
			scene: cluster(t, []string{"a100: 1g.5gb@0!"}).laidOut(into(m{"7g.40gb": 1})),
			says:  []string{"GPU 0 of node n1 (A100-40GB) waits until pods end that have instances which the layout has no place for"},
		},
		"it cannot be": {
			scene: cluster(t, []string{"a100:"}).laidOut(into(m{"4g.20gb": 1, "3g.20gb": 1, "1g.5gb": 1})),
			says:  []string{"GPU 0 of node n1 (A100-40GB) cannot be cut into 1g.5gb: 1, 3g.20gb: 1, 4g.20gb: 1: there is no room for 1g.5gb"},
		},
		"more media engines than there are": {
			scene: cluster(t, []string{"a100:"}).laidOut(into(m{"1g.5gb+me": 2})),
			says:  []string{"GPU 0 of node n1 (A100-40GB) cannot be cut into 1g.5gb+me: 2: there is no room for 1g.5gb+me"},
		},
		"another board's profile": {
			scene: cluster(t, []string{"a100:"}).laidOut(into(m{"1g.10gb": 1, "3g.40gb": 1})),
			says: []string{"GPU 0 of node n1 (A100-40GB) cannot be cut into 3g.40gb: A100-40GB has no MIG profile \"3g.40gb\"; " +
				"it has [1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb]"},
		},
		"by index, and by kind": {
			scene: cluster(t, []string{"a100:", "a100:", "h100:"}).laidOut(
				v1alpha1.MIGLayout{Devices: []int32{1}, MIGDevices: m{"7g.40gb": 1}},
				v1alpha1.MIGLayout{DeviceFilter: []string{"0x233010de"}, MIGDevices: m{"7g.80gb": 1}},
			).tainted("n1", settle, 1),
			want: []string{"write n1 1[7g.40gb@0] 2[7g.80gb@0]"},
		},
		"left whole": {
			scene: cluster(t, []string{"h100: 1g.10gb@0", "h100 off"}).laidOut(v1alpha1.MIGLayout{MIGEnabled: ptr.To(false)}).tainted("n1", settle, 1),
			want:  []string{"write n1 []off"},
		},
		"not while somebody has a part": {
			scene: cluster(t, []string{"h100: 1g.10gb@0!"}).laidOut(v1alpha1.MIGLayout{MIGEnabled: ptr.To(false)}),
			says:  []string{"GPU 0 of node n1 (H100-80GB) waits until the pods end that have its instances"},
		},
		"out of MIG mode, which changes at once": {
			scene: cluster(t, []string{"h100 off"}).laidOut(into(m{"7g.80gb": 1})).tainted("n1", settle, 1),
			want:  []string{"write n1 [7g.80gb@0]"},
		},
		"out of MIG mode, which does not": {
			scene: cluster(t, []string{"a100 off"}).laidOut(into(m{"7g.40gb": 1})),
			says: []string{"GPU 0 of node n1 (A100-40GB) is not in MIG mode, which only a reset changes: " +
				"enable it (nvidia-smi -i 0 -mig 1) and reset the GPU, or set spec.mig.resets to WhenIdle or Drain"},
		},
		"nothing is cut for pods": {
			scene: cluster(t, []string{"a100: 7g.40gb@0"}).laidOut(into(m{"7g.40gb": 1})).wanting("p", "3g.20gb"),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := decide(&tt.scene.snapshot, start)
			var got []string
			for i := range d.actions {
				got = append(got, d.actions[i].words())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if diff := cmp.Diff(tt.says, d.impossible[0]); diff != "" {
				t.Errorf("it says: -want +got\n%s", diff)
			}
		})
	}
}
