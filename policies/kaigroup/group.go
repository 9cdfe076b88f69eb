// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kaigroup knows what of KAI-Scheduler's PodGroups is decided by Sluice: in
// whose queue a group is, on which nodes it may be, and what it is worth.
//
// Enters: a project's node pools, as policies see them, and a PodGroup as the API
// server has it. Leaves: the places where its groups may be, and the PodGroup with
// one of them. The queues have the names that policy schedulers.kai renders.
//
// It never reads or writes the cluster, and changes nothing else of a PodGroup.
package kaigroup

import (
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
	mergeschema "sluice.dev/policies/merge/schema"
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
func (g Group) Queue() string { return mergeschema.AsString(g.spec()["queue"]) }

// ClassName is the name of the group's PriorityClass.
func (g Group) ClassName() string { return mergeschema.AsString(g.spec()["priorityClassName"]) }

// Preemptible tells whether the group can be preempted: what it says of itself, and
// by its class where it says nothing.
func (g Group) Preemptible() bool {
	if said := mergeschema.AsString(g.spec()["preemptibility"]); said != "" {
		return said != nonPreemptible
	}
	return ParseClass(g.ClassName()).Preemptible()
}

// TriesOncePerShard tells whether the group is tried once in a shard, and then no more until it
// is in another.
func (g Group) TriesOncePerShard() bool {
	n, ok := mergeschema.AsInt64(g.spec()["schedulingBackoff"])
	return ok && n == 1
}

// IsUnschedulable tells whether the place's scheduler was the last to say of the group, and
// said that there is no room for it.
func (g Group) IsUnschedulable(at Placement) bool {
	last := map[string]any(nil)
	for _, condition := range mergeschema.AsList(mergeschema.AsMap(g["status"])["schedulingConditions"]) {
		if c := mergeschema.AsMap(condition); last == nil || transitionTime(c) > transitionTime(last) {
			last = c
		}
	}
	return last != nil && mergeschema.AsString(last["type"]) == "UnschedulableOnNodePool" &&
		mergeschema.AsString(last["status"]) == "True" && mergeschema.AsString(last["nodePool"]) == at.ShardName()
}

// transitionTime is when a condition was written, as KAI counts it.
func transitionTime(condition map[string]any) int {
	n, err := strconv.Atoi(mergeschema.AsString(condition["transitionID"]))
	if err != nil {
		return -1
	}
	return n
}

// WithPlacement is the group at a place.
func (g Group) WithPlacement(place Placement) Group {
	labels := maps.Clone(mergeschema.AsMap(mergeschema.AsMap(g["metadata"])["labels"]))
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
	return g.withField("metadata", "labels", labels).withField("spec", "queue", place.Queue)
}

// WithoutQueue is the group in no queue, so that nobody's is used for it.
func (g Group) WithoutQueue() Group { return g.withField("spec", "queue", nil) }

// WithClass is the group with a class, said outright.
func (g Group) WithClass(class Class) Group {
	return g.withField("spec", "priorityClassName", string(class)).withField("spec", "preemptibility", class.preemptibility())
}

// withField is a copy with one field of metadata or spec; nil takes it out.
func (g Group) withField(part, field string, of any) Group {
	below := maps.Clone(mergeschema.AsMap(g[part]))
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

func (g Group) spec() map[string]any { return mergeschema.AsMap(g["spec"]) }

// Class is what a group is worth: a PriorityClass of Sluice's.
type Class string

// The values of a group's spec.preemptibility.
const (
	preemptible    = "preemptible"
	nonPreemptible = "non-preemptible"
)

// ParseClass is the class that somebody names: one of Sluice's, or of those that
// KAI-Scheduler installs. Who names another, or none, can be preempted.
func ParseClass(name string) Class {
	switch name {
	case v1alpha1.PriorityClassInteractive, "build":
		return v1alpha1.PriorityClassInteractive
	case v1alpha1.PriorityClassInteractivePreemptible, "build-preemptible":
		return v1alpha1.PriorityClassInteractivePreemptible
	case v1alpha1.PriorityClassInference, "inference":
		return v1alpha1.PriorityClassInference
	default:
		return v1alpha1.PriorityClassTrain
	}
}

// IsSluiceClass tells whether a class is one of Sluice's by its name.
func IsSluiceClass(name string) bool { return name == string(ParseClass(name)) }

// Preemptible tells whether a group of the class may be ended for others.
func (c Class) Preemptible() bool {
	return c != v1alpha1.PriorityClassInteractive && c != v1alpha1.PriorityClassInference
}

func (c Class) preemptibility() string {
	if c.Preemptible() {
		return preemptible
	}
	return nonPreemptible
}

// Placement is where a project's groups may be: one of its node pools.
type Placement struct {
	// Pool is the NodePool's name.
	Pool string
	// Queue is the project's queue there.
	Queue string
	// Shard is which of KAI's own node pools it is; empty for the nodes of none.
	Shard string
	// Closed tells that the pool takes no pods.
	Closed bool

	queueKey, shardKey string
}

// Keys that KAI-Scheduler has unless it is told otherwise.
const (
	defaultQueueKey = "kai.scheduler/queue"
	defaultShardKey = "kai.scheduler/node-pool"
	// defaultShard is how KAI calls the nodes that are in no shard.
	defaultShard = "default"
)

// Placements are those of a project, in its order: its pools whose scheduler is KAI.
func Placements(project string, pools []input.NodePool) []Placement {
	var places []Placement
	for i := range pools {
		pool := &pools[i]
		if pool.Scheduler != v1alpha1.SchedulerKAI {
			continue
		}
		place := Placement{
			Pool: pool.Name, Queue: project + "." + pool.Name, Closed: pool.Unsupported != "",
			queueKey: poolSetting(pool, "queueLabelKey", defaultQueueKey), shardKey: poolSetting(pool, "nodePoolLabelKey", defaultShardKey),
		}
		place.Shard = pool.NodeSelector[place.shardKey]
		places = append(places, place)
	}
	return places
}

func poolSetting(pool *input.NodePool, name, usual string) string {
	if found := pool.Settings[name]; found != "" {
		return found
	}
	return usual
}

// Labels are those by which a pod or a group says that it is here; where the value
// is empty, it has none of that key.
func (p Placement) Labels() map[string]string {
	return map[string]string{p.queueKey: p.Queue, p.shardKey: p.Shard}
}

// ShardName is the shard as KAI has it in conditions.
func (p Placement) ShardName() string {
	if p.Shard == "" {
		return defaultShard
	}
	return p.Shard
}

// FindPlacement is the place with that queue.
func FindPlacement(places []Placement, queue string) (Placement, bool) {
	for _, place := range places {
		if place.Queue == queue {
			return place, true
		}
	}
	return Placement{}, false
}

// DefaultPlacement is where a group goes that says nothing of use: the first place that takes
// pods, else the first.
func DefaultPlacement(places []Placement) (Placement, bool) {
	for _, place := range places {
		if !place.Closed {
			return place, true
		}
	}
	if len(places) > 0 {
		return places[0], true
	}
	return Placement{}, false
}
