// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nextpool

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/facts"
	"sluice.dev/policies/kaigroup"
)

var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

// places are the pools a, b and c of project thesis; c takes no pods.
func places() []kaigroup.Place {
	var pools []facts.Pool
	for _, name := range []string{"a", "b", "c"} {
		pools = append(pools, facts.Pool{Name: name, Scheduler: v1alpha1.SchedulerKAI, NodeSelector: map[string]string{"kai.scheduler/node-pool": name}})
	}
	pools[2].Unsupported = "it has no nodes"
	return kaigroup.Places("thesis", pools)
}

// in is a group in a pool's queue, of a class.
func in(pool string, class kaigroup.Class) kaigroup.Group {
	place, _ := kaigroup.Find(places(), "thesis."+pool)
	return kaigroup.Group{"metadata": map[string]any{}, "spec": map[string]any{}}.In(place).Of(class)
}

// refused is the group, for which there is no room where it is; once is how it is
// tried.
func refused(group kaigroup.Group, times int64) kaigroup.Group {
	place, _ := kaigroup.Find(places(), group.Queue())
	group["spec"].(map[string]any)["schedulingBackoff"] = times
	group["status"] = map[string]any{"schedulingConditions": []any{map[string]any{
		"type": "UnschedulableOnNodePool", "status": "True", "nodePool": place.ShardName(), "transitionID": "1",
	}}}
	return group
}

func pod(class kaigroup.Class, pools, node string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationNodePools: pools}},
		Spec:       corev1.PodSpec{PriorityClassName: string(class), NodeName: node},
	}
}

func TestDecide(t *testing.T) {
	const train, serve = v1alpha1.PriorityClassTrain, v1alpha1.PriorityClassInference
	at := func(pool string) *kaigroup.Place {
		place, _ := kaigroup.Find(places(), "thesis."+pool)
		return &place
	}
	for name, tc := range map[string]struct {
		group     kaigroup.Group
		pods      []corev1.Pod
		notBefore time.Time
		want      step
	}{
		"it has no pods yet":                       {refused(in("a", train), 1), nil, noon, step{}},
		"nobody refused it":                        {in("a", train), []corev1.Pod{pod(train, "a,b", "")}, noon, step{}},
		"it is to be tried no more before it goes": {refused(in("a", train), -1), []corev1.Pod{pod(train, "a,b", "")}, time.Time{}, step{once: true}},
		"what was begun may still come to its end": {refused(in("a", train), 1), []corev1.Pod{pod(train, "a,b", "")}, time.Time{}, step{wait: noon.Add(settle)}},
		"not yet":                          {refused(in("a", train), 1), []corev1.Pod{pod(train, "a,b", "")}, noon.Add(time.Second), step{wait: noon.Add(time.Second)}},
		"the next":                         {refused(in("a", train), 1), []corev1.Pod{pod(train, "a,b", "")}, noon, step{move: at("b")}},
		"after the last, the first":        {refused(in("b", train), 1), []corev1.Pod{pod(train, "a,b,c", "")}, noon, step{move: at("a")}},
		"in the order of the pods":         {refused(in("b", train), 1), []corev1.Pod{pod(train, "b,a", "")}, noon, step{move: at("a")}},
		"a pod has a node":                 {refused(in("a", train), 1), []corev1.Pod{pod(train, "a,b", ""), pod(train, "a,b", "dgx-1")}, noon, step{}},
		"not all pods may go there":        {refused(in("a", train), -1), []corev1.Pod{pod(train, "a,b", ""), pod(train, "a", "")}, noon, step{}},
		"the others take no pods":          {refused(in("a", train), 1), []corev1.Pod{pod(train, "a,c", "")}, noon, step{again: true}},
		"one that is none of theirs":       {refused(in("a", train), 1), []corev1.Pod{pod(train, "b", "")}, noon, step{move: at("b")}},
		"they say nothing":                 {refused(in("a", train), -1), []corev1.Pod{pod(train, "", "")}, noon, step{}},
		"a pod that can be preempted":      {in("a", serve), []corev1.Pod{pod(serve, "a", ""), pod(train, "a", "dgx-1")}, noon, step{demote: train}},
		"pods that cannot be":              {in("a", serve), []corev1.Pod{pod(serve, "a", "dgx-1")}, noon, step{}},
		"a pod that cannot be, among such": {in("a", train), []corev1.Pod{pod(serve, "a", "dgx-1")}, noon, step{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := decide(noon, tc.group, places(), tc.pods, tc.notBefore)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(step{}), cmpopts.IgnoreUnexported(kaigroup.Place{})); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
