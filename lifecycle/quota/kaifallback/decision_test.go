// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kaifallback

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
	"sluice.dev/policies/kaigroup"
)

var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

// testPlaces are the pools a, b and c of project thesis; c takes no pods.
func testPlaces() []kaigroup.Placement {
	var pools []input.NodePool
	for _, name := range []string{"a", "b", "c"} {
		pools = append(pools, input.NodePool{Name: name, Scheduler: v1alpha1.SchedulerKAI, NodeSelector: map[string]string{"kai.scheduler/node-pool": name}})
	}
	pools[2].Unsupported = "it has no nodes"
	return kaigroup.Placements("thesis", pools)
}

// groupIn is a group in a pool's queue, of a class.
func groupIn(pool string, class kaigroup.Class) kaigroup.Group {
	place, _ := kaigroup.FindPlacement(testPlaces(), "thesis."+pool)
	return kaigroup.Group{"metadata": map[string]any{}, "spec": map[string]any{}}.WithPlacement(place).WithClass(class)
}

// withUnschedulable is the group, for which there is no room where it is; once is how it is
// tried.
func withUnschedulable(group kaigroup.Group, times int64) kaigroup.Group {
	place, _ := kaigroup.FindPlacement(testPlaces(), group.Queue())
	group["spec"].(map[string]any)["schedulingBackoff"] = times
	group["status"] = map[string]any{"schedulingConditions": []any{map[string]any{
		"type": "UnschedulableOnNodePool", "status": "True", "nodePool": place.ShardName(), "transitionID": "1",
	}}}
	return group
}

func newPod(class kaigroup.Class, pools, node string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationNodePools: pools}},
		Spec:       corev1.PodSpec{PriorityClassName: string(class), NodeName: node},
	}
}

func TestDecide(t *testing.T) {
	const train, serve = v1alpha1.PriorityClassTrain, v1alpha1.PriorityClassInference
	at := func(pool string) *kaigroup.Placement {
		place, _ := kaigroup.FindPlacement(testPlaces(), "thesis."+pool)
		return &place
	}
	for name, tc := range map[string]struct {
		group     kaigroup.Group
		pods      []corev1.Pod
		notBefore time.Time
		want      decision
	}{
		"it has no pods yet":                               {withUnschedulable(groupIn("a", train), 1), nil, noon, decision{}},
		"rejected by no scheduler":                         {groupIn("a", train), []corev1.Pod{newPod(train, "a,b", "")}, noon, decision{}},
		"it is to be tried no more before it goes":         {withUnschedulable(groupIn("a", train), -1), []corev1.Pod{newPod(train, "a,b", "")}, time.Time{}, decision{tryOnce: true}},
		"it is tried where it is until the minute is over": {withUnschedulable(groupIn("b", train), -1), []corev1.Pod{newPod(train, "a,b", "")}, noon.Add(time.Second), decision{waitUntil: noon.Add(time.Second)}},
		"the minute is over":                               {withUnschedulable(groupIn("b", train), -1), []corev1.Pod{newPod(train, "a,b", "")}, noon, decision{tryOnce: true}},
		"a pod has a node, and the rest waits":             {withUnschedulable(groupIn("a", train), 1), []corev1.Pod{newPod(train, "a,b", ""), newPod(train, "a,b", "dgx-1")}, noon, decision{retryForever: true}},
		"what was begun may still come to its end":         {withUnschedulable(groupIn("a", train), 1), []corev1.Pod{newPod(train, "a,b", "")}, time.Time{}, decision{waitUntil: noon.Add(schedulerSettleDelay)}},
		"not yet":                          {withUnschedulable(groupIn("a", train), 1), []corev1.Pod{newPod(train, "a,b", "")}, noon.Add(time.Second), decision{waitUntil: noon.Add(time.Second)}},
		"the next":                         {withUnschedulable(groupIn("a", train), 1), []corev1.Pod{newPod(train, "a,b", "")}, noon, decision{move: at("b")}},
		"after the last, the first":        {withUnschedulable(groupIn("b", train), 1), []corev1.Pod{newPod(train, "a,b,c", "")}, noon, decision{move: at("a")}},
		"in the order of the pods":         {withUnschedulable(groupIn("b", train), 1), []corev1.Pod{newPod(train, "b,a", "")}, noon, decision{move: at("a")}},
		"a pod has a node":                 {withUnschedulable(groupIn("a", train), -1), []corev1.Pod{newPod(train, "a,b", ""), newPod(train, "a,b", "dgx-1")}, noon, decision{}},
		"not all pods may go there":        {withUnschedulable(groupIn("a", train), -1), []corev1.Pod{newPod(train, "a,b", ""), newPod(train, "a", "")}, noon, decision{}},
		"the others take no pods":          {withUnschedulable(groupIn("a", train), 1), []corev1.Pod{newPod(train, "a,c", "")}, noon, decision{retryForever: true}},
		"one that is none of theirs":       {withUnschedulable(groupIn("a", train), 1), []corev1.Pod{newPod(train, "b", "")}, noon, decision{move: at("b")}},
		"they say nothing":                 {withUnschedulable(groupIn("a", train), -1), []corev1.Pod{newPod(train, "", "")}, noon, decision{}},
		"a pod that can be preempted":      {groupIn("a", serve), []corev1.Pod{newPod(serve, "a", ""), newPod(train, "a", "dgx-1")}, noon, decision{demote: train}},
		"pods that cannot be":              {groupIn("a", serve), []corev1.Pod{newPod(serve, "a", "dgx-1")}, noon, decision{}},
		"a pod that cannot be, among such": {groupIn("a", train), []corev1.Pod{newPod(serve, "a", "dgx-1")}, noon, decision{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := decide(noon, tc.group, testPlaces(), tc.pods, tc.notBefore)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(decision{}), cmpopts.IgnoreUnexported(kaigroup.Placement{})); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
