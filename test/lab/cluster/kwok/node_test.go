// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kwok_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNodeReady(t *testing.T) {
	l := startStageRunner(t)
	node := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "dgx-1", UID: "11"},
		Status: corev1.NodeStatus{
			Capacity: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown",
			}},
		},
	}
	first := l.nextStage(node)
	if diff := cmp.Diff([]string{"node-ready"}, first.Stages); diff != "" || first.Delay != 0 {
		t.Fatalf("after %s (-want +got):\n%s", first.Delay, diff)
	}
	ready := &corev1.Node{}
	if err := json.Unmarshal(first.Object, ready); err != nil {
		t.Fatal(err)
	}
	ready.TypeMeta = node.TypeMeta
	conditions := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, c := range ready.Status.Conditions {
		conditions[c.Type] = c.Status
	}
	want := map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: "True", corev1.NodeMemoryPressure: "False", corev1.NodeDiskPressure: "False",
		corev1.NodePIDPressure: "False", corev1.NodeNetworkUnavailable: "False",
	}
	if diff := cmp.Diff(want, conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(node.Status.Capacity, ready.Status.Capacity); diff != "" {
		t.Errorf("kwok changed the capacity (-want +got):\n%s", diff)
	}

	since := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	for i := range ready.Status.Conditions {
		ready.Status.Conditions[i].LastTransitionTime = since
		ready.Status.Conditions[i].LastHeartbeatTime = since
	}
	beat := l.nextStage(ready)
	if diff := cmp.Diff([]string{"node-heartbeat"}, beat.Stages); diff != "" || beat.Delay != 5*time.Minute {
		t.Fatalf("after %s (-want +got):\n%s", beat.Delay, diff)
	}
	alive := &corev1.Node{}
	if err := json.Unmarshal(beat.Object, alive); err != nil {
		t.Fatal(err)
	}
	for _, c := range alive.Status.Conditions {
		if !c.LastHeartbeatTime.After(since.Time) || !c.LastTransitionTime.Time.Equal(since.Time) {
			t.Errorf("condition %s: heartbeat %s, transition %s; want only the heartbeat to move", c.Type, c.LastHeartbeatTime,
				c.LastTransitionTime)
		}
		if c.Status == "" || c.Reason == "" {
			t.Errorf("condition %s lost its status", c.Type)
		}
	}
}
