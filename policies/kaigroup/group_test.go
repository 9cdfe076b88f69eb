// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kaigroup_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
	"sluice.dev/policies/kaigroup"
)

// pools are one of KAI's with a shard, one without, and another engine's.
var pools = []input.NodePool{
	{Name: "whole", Scheduler: v1alpha1.SchedulerKube, NodeSelector: map[string]string{"kai.scheduler/node-pool": "whole"}},
	{Name: "a", Scheduler: v1alpha1.SchedulerKAI, NodeSelector: map[string]string{"kai.scheduler/node-pool": "a100"}, Unsupported: "it has no nodes"},
	{Name: "b", Scheduler: v1alpha1.SchedulerKAI, NodeSelector: map[string]string{"pool": "b"}, Settings: map[string]string{"queueLabelKey": "runai/queue"}},
}

func TestPlacementsAreKAIPools(t *testing.T) {
	places := kaigroup.Placements("thesis", pools)
	var got []map[string]string
	for _, place := range places {
		labels := place.Labels()
		labels["queue"], labels["shard"] = place.Queue, place.ShardName()
		got = append(got, labels)
	}
	want := []map[string]string{
		{"queue": "thesis.a", "shard": "a100", "kai.scheduler/queue": "thesis.a", "kai.scheduler/node-pool": "a100"},
		{"queue": "thesis.b", "shard": "default", "runai/queue": "thesis.b", "kai.scheduler/node-pool": ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if first, ok := kaigroup.DefaultPlacement(places); !ok || first.Pool != "b" {
		t.Errorf("first is %+v", first)
	}
	if first, ok := kaigroup.DefaultPlacement(places[:1]); !ok || first.Pool != "a" {
		t.Errorf("of closed places the first is %+v", first)
	}
	if _, ok := kaigroup.DefaultPlacement(nil); ok {
		t.Error("there is a first of none")
	}
}

func TestParseClass(t *testing.T) {
	for name, want := range map[string]struct {
		class       kaigroup.Class
		preemptible bool
	}{
		"sluice-interactive":             {"sluice-interactive", false},
		"build":                          {"sluice-interactive", false},
		"inference":                      {"sluice-inference", false},
		"build-preemptible":              {"sluice-interactive-preemptible", true},
		"sluice-interactive-preemptible": {"sluice-interactive-preemptible", true},
		"train":                          {"sluice-train", true},
		"system-node-critical":           {"sluice-train", true},
		"":                               {"sluice-train", true},
	} {
		if got := kaigroup.ParseClass(name); got != want.class || got.Preemptible() != want.preemptible {
			t.Errorf("%q is %s, preemptible %t", name, got, got.Preemptible())
		}
	}
	if kaigroup.IsSluiceClass("build") || !kaigroup.IsSluiceClass("sluice-train") {
		t.Error("build is ours, or sluice-train is not")
	}
}

func TestGroupCopiesOnWrite(t *testing.T) {
	group := kaigroup.Group{
		"metadata": map[string]any{"name": "pg", "labels": map[string]any{"mine": "yes", "kai.scheduler/node-pool": "other"}},
		"spec":     map[string]any{"queue": "theirs", "minMember": int64(2)},
	}
	before := kaigroup.Group{
		"metadata": map[string]any{"name": "pg", "labels": map[string]any{"mine": "yes", "kai.scheduler/node-pool": "other"}},
		"spec":     map[string]any{"queue": "theirs", "minMember": int64(2)},
	}
	place := kaigroup.Placements("thesis", pools)[1]
	got := group.WithPlacement(place).WithClass("sluice-interactive")
	want := kaigroup.Group{
		"metadata": map[string]any{"name": "pg", "labels": map[string]any{"mine": "yes", "runai/queue": "thesis.b"}},
		"spec": map[string]any{
			"queue": "thesis.b", "minMember": int64(2), "priorityClassName": "sluice-interactive", "preemptibility": "non-preemptible",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff(before, group); diff != "" {
		t.Errorf("the group itself was changed:\n%s", diff)
	}
	if queue := group.WithoutQueue().Queue(); queue != "" {
		t.Errorf("nowhere is %q", queue)
	}
	if queue := kaigroup.Group(nil).WithPlacement(place).Queue(); queue != "thesis.b" {
		t.Errorf("of nothing: %q", queue)
	}
}

func TestGroupIsUnschedulableByLatestCondition(t *testing.T) {
	condition := func(id, pool, status string) any {
		return map[string]any{"type": "UnschedulableOnNodePool", "status": status, "nodePool": pool, "transitionID": id}
	}
	places := kaigroup.Placements("thesis", pools)
	for name, tc := range map[string]struct {
		conditions []any
		want       [2]bool // in a100, in the default shard
	}{
		"without any value":             {nil, [2]bool{}},
		"one did":                       {[]any{condition("1", "a100", "True")}, [2]bool{true, false}},
		"the later, though it is first": {[]any{condition("10", "default", "True"), condition("9", "a100", "True")}, [2]bool{false, true}},
		"no more":                       {[]any{condition("1", "a100", "False")}, [2]bool{}},
		"rubbish":                       {[]any{"x", map[string]any{"type": 7}}, [2]bool{}},
	} {
		group := kaigroup.Group{"status": map[string]any{"schedulingConditions": tc.conditions}}
		if got := [2]bool{group.IsUnschedulable(places[0]), group.IsUnschedulable(places[1])}; got != tc.want {
			t.Errorf("%s: refused in a100, default: %v", name, got)
		}
	}
}

func TestGroupPreemptibleDefaultsToClass(t *testing.T) {
	for said, want := range map[[2]string]bool{
		{"", "sluice-train"}:                     true,
		{"", "build"}:                            false,
		{"non-preemptible", "sluice-train"}:      false,
		{"preemptible", "sluice-inference"}:      true,
		{"semi-preemptible", "sluice-inference"}: true,
	} {
		group := kaigroup.Group{"spec": map[string]any{"preemptibility": said[0], "priorityClassName": said[1], "schedulingBackoff": int64(1)}}
		if got := group.Preemptible(); got != want || !group.TriesOncePerShard() {
			t.Errorf("%q of class %q: preemptible %t, once %t", said[0], said[1], got, group.TriesOncePerShard())
		}
	}
}
