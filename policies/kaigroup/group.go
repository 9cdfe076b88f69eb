// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kaigroup

import (
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/policies/merge/value"
)

// Kind is that of groups, in the version that is written for.
var Kind = schema.GroupVersionKind{Group: "scheduling.run.ai", Version: "v2alpha2", Kind: "PodGroup"}

// CRD is the name of the custom resource definition of Kind.
const CRD = "podgroups.scheduling.run.ai"

// AnnotationGroup is on a pod that KAI-Scheduler put into a group: the group's name.
const AnnotationGroup = "pod-group-name"

// LabelKRMProject is on a namespace in which kai-resource-management decides where
// groups are.
const LabelKRMProject = "kai/project"

// Group is a PodGroup as the API server has it. It is read, and never changed: what
// changes it returns another, which shares with it all else.
type Group map[string]any

// Queue is the queue that the group is in.
func (g Group) Queue() string { return value.Text(g.spec()["queue"]) }

// ClassName is the name of the group's PriorityClass.
func (g Group) ClassName() string { return value.Text(g.spec()["priorityClassName"]) }

// Preemptible tells whether the group can be preempted: what it says of itself, and
// by its class where it says nothing.
func (g Group) Preemptible() bool {
	if said := value.Text(g.spec()["preemptibility"]); said != "" {
		return said != nonPreemptible
	}
	return ClassOf(g.ClassName()).Preemptible()
}

// Once tells whether the group is tried once in a shard, and then no more until it
// is in another.
func (g Group) Once() bool {
	n, ok := value.Whole(g.spec()["schedulingBackoff"])
	return ok && n == 1
}

// Refused tells whether the place's scheduler was the last to say of the group, and
// said that there is no room for it.
func (g Group) Refused(at Place) bool {
	last := map[string]any(nil)
	for _, condition := range value.List(value.Map(g["status"])["schedulingConditions"]) {
		if c := value.Map(condition); last == nil || transition(c) > transition(last) {
			last = c
		}
	}
	return last != nil && value.Text(last["type"]) == "UnschedulableOnNodePool" &&
		value.Text(last["status"]) == "True" && value.Text(last["nodePool"]) == at.ShardName()
}

// transition is when a condition was written, as KAI counts it.
func transition(condition map[string]any) int {
	n, err := strconv.Atoi(value.Text(condition["transitionID"]))
	if err != nil {
		return -1
	}
	return n
}

// In is the group at a place.
func (g Group) In(place Place) Group {
	labels := maps.Clone(value.Map(value.Map(g["metadata"])["labels"]))
	if labels == nil {
		labels = map[string]any{}
	}
	for key, text := range place.Labels() {
		if text == "" {
			delete(labels, key)
		} else {
			labels[key] = text
		}
	}
	return g.with("metadata", "labels", labels).with("spec", "queue", place.Queue)
}

// Nowhere is the group in no queue, so that nobody's is used for it.
func (g Group) Nowhere() Group { return g.with("spec", "queue", nil) }

// Of is the group with a class, said outright.
func (g Group) Of(class Class) Group {
	return g.with("spec", "priorityClassName", string(class)).with("spec", "preemptibility", class.preemptibility())
}

// with is a copy with one field of metadata or spec; nil takes it out.
func (g Group) with(part, field string, of any) Group {
	below := maps.Clone(value.Map(g[part]))
	if below == nil {
		below = map[string]any{}
	}
	if of == nil {
		delete(below, field)
	} else {
		below[field] = of
	}
	after := maps.Clone(g)
	if after == nil {
		after = Group{}
	}
	after[part] = below
	return after
}

func (g Group) spec() map[string]any { return value.Map(g["spec"]) }
