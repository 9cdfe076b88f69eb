// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Protects invariant 8: the heartbeat of a node with GPUs, which changes nothing but a time, neither ends the process
// nor causes a decision.
func TestHeartbeatOfNodeCausesNoDecision(t *testing.T) {
	node := func(seconds int64, devices string) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{
				"nvidia.com/gpu": resource.MustParse("8"), "nvidia.com/mig-3g.20gb": resource.MustParse(devices),
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Unix(seconds, 0)}},
		}}
	}
	for name, tc := range map[string]struct {
		after *corev1.Node
		want  bool
	}{
		"heartbeat":    {node(300, "2"), false},
		"fewer slices": {node(300, "1"), true},
		"no devices":   {&corev1.Node{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nodeChangedPredicate.Update(event.UpdateEvent{ObjectOld: node(0, "2"), ObjectNew: tc.after}); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
