// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kaigroup determines the fields of KAI-Scheduler's PodGroups that Sluice controls: the queue, the nodes, the
// priority class and the preemptibility.
//
// [Placements] returns the possible placements of a project's groups from its node pools. Methods of [Group] return a
// PodGroup with a placement or a class. The queues have the names that policy schedulers.kai renders.
//
// The package never reads or writes the cluster, and never changes other fields of a PodGroup.
package kaigroup

import (
	"cmp"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
	mergeschema "sluice.dev/policies/merge/schema"
)

// Kind is the supported kind of PodGroups.
var Kind = schema.GroupVersionKind{Group: "scheduling.run.ai", Version: "v2alpha2", Kind: "PodGroup"}

// QueueKind is the supported kind of Queues.
var QueueKind = schema.GroupVersionKind{Group: "scheduling.run.ai", Version: "v2", Kind: "Queue"}

// CRD is the name of the CustomResourceDefinition of Kind.
const CRD = "podgroups.scheduling.run.ai"

// AnnotationGroup is the annotation by KAI-Scheduler with the name of a pod's group.
const AnnotationGroup = "pod-group-name"

// LabelKRMProject is the label of namespaces in which kai-resource-management controls the placement of groups.
const LabelKRMProject = "kai/project"

// Group is a PodGroup. It is immutable: the With methods return a changed copy that shares all other fields.
type Group map[string]any

// Queue returns the group's queue.
func (g Group) Queue() string { return mergeschema.AsString(g.spec()["queue"]) }

// ClassName returns the name of the group's PriorityClass.
func (g Group) ClassName() string { return mergeschema.AsString(g.spec()["priorityClassName"]) }

// Preemptible reports whether the group can be preempted, by its spec.preemptibility or else by its class.
func (g Group) Preemptible() bool {
	if preemptibility := mergeschema.AsString(g.spec()["preemptibility"]); preemptibility != "" {
		return preemptibility != nonPreemptible
	}
	return ParseClass(g.ClassName()).Preemptible()
}

// TriesOncePerShard reports whether the scheduler tries the group once in a shard, and not again until the group is in
// another shard.
func (g Group) TriesOncePerShard() bool {
	n, ok := mergeschema.AsInt64(g.spec()["schedulingBackoff"])
	return ok && n == 1
}

// IsUnschedulable reports whether the group's latest condition says that it does not fit into the placement.
func (g Group) IsUnschedulable(placement Placement) bool {
	last := g.lastCondition()
	return last != nil && mergeschema.AsString(last["type"]) == "UnschedulableOnNodePool" &&
		mergeschema.AsString(last["status"]) == "True" && mergeschema.AsString(last["nodePool"]) == placement.ShardName()
}

// UnschedulableReason is a reason in a condition of KAI-Scheduler. Queue is the queue whose quota is used up; empty for
// other reasons.
type UnschedulableReason struct {
	Reason, Message, Queue string
}

// UnschedulableReasons returns the reasons of the group's latest condition.
func (g Group) UnschedulableReasons() []UnschedulableReason {
	var reasons []UnschedulableReason
	for _, element := range mergeschema.AsList(g.lastCondition()["reasons"]) {
		reason := mergeschema.AsMap(element)
		details := mergeschema.AsMap(mergeschema.AsMap(reason["details"])["queueDetails"])
		reasons = append(reasons, UnschedulableReason{
			Reason: mergeschema.AsString(reason["reason"]), Message: mergeschema.AsString(reason["message"]),
			Queue: mergeschema.AsString(details["name"]),
		})
	}
	return reasons
}

// lastCondition returns the group's latest scheduling condition; nil if it has none.
func (g Group) lastCondition() (last map[string]any) {
	for _, condition := range mergeschema.AsList(mergeschema.AsMap(g["status"])["schedulingConditions"]) {
		if c := mergeschema.AsMap(condition); last == nil || transitionTime(c) > transitionTime(last) {
			last = c
		}
	}
	return last
}

// transitionTime returns KAI's sequence number of a condition.
func transitionTime(condition map[string]any) int {
	n, err := strconv.Atoi(mergeschema.AsString(condition["transitionID"]))
	if err != nil {
		return -1
	}
	return n
}

// WithPlacement returns the group with a placement.
func (g Group) WithPlacement(placement Placement) Group {
	labels := maps.Clone(mergeschema.AsMap(mergeschema.AsMap(g["metadata"])["labels"]))
	if labels == nil {
		labels = map[string]any{}
	}
	for key, text := range placement.Labels() {
		if text == "" {
			delete(labels, key)
		} else {
			labels[key] = text
		}
	}
	return g.withField("metadata", "labels", labels).withField("spec", "queue", placement.Queue)
}

// WithoutQueue returns the group without a queue, so that it uses no project's quota.
func (g Group) WithoutQueue() Group { return g.withField("spec", "queue", nil) }

// WithClass returns the group with a class and its preemptibility.
func (g Group) WithClass(class Class) Group {
	return g.withField("spec", "priorityClassName", string(class)).withField("spec", "preemptibility", class.preemptibility())
}

// withField returns a copy with a new value of one field of metadata or spec; nil removes the field.
func (g Group) withField(section, field string, value any) Group {
	fields := maps.Clone(mergeschema.AsMap(g[section]))
	if fields == nil {
		fields = map[string]any{}
	}
	if value == nil {
		delete(fields, field)
	} else {
		fields[field] = value
	}
	after := maps.Clone(g)
	if after == nil {
		after = Group{}
	}
	after[section] = fields
	return after
}

func (g Group) spec() map[string]any { return mergeschema.AsMap(g["spec"]) }

// Class is one of Sluice's PriorityClasses.
type Class string

// The values of a group's spec.preemptibility.
const (
	preemptible    = "preemptible"
	nonPreemptible = "non-preemptible"
)

// ParseClass returns the class for the name of a PriorityClass of Sluice or of KAI-Scheduler. For all other names it
// returns the preemptible class sluice-train.
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

// IsSluiceClass reports whether the name is that of a class of Sluice.
func IsSluiceClass(name string) bool { return name == string(ParseClass(name)) }

// Preemptible reports whether groups of the class can be preempted.
func (c Class) Preemptible() bool {
	return c != v1alpha1.PriorityClassInteractive && c != v1alpha1.PriorityClassInference
}

func (c Class) preemptibility() string {
	if c.Preemptible() {
		return preemptible
	}
	return nonPreemptible
}

// Placement is a possible placement of a project's groups: one of its node pools.
type Placement struct {
	// Pool is the NodePool's name.
	Pool string
	// Queue is the project's queue in the pool.
	Queue string
	// Shard is KAI's name of the node pool; empty for the nodes without one.
	Shard string
	// Closed reports whether the pool accepts no pods.
	Closed bool
	// UnitsPerGPU is the number of units that KAI counts for one GPU: its compute slices with MIG, and 1 without.
	UnitsPerGPU int64

	queueKey, shardKey string
}

// The default keys of KAI-Scheduler.
const (
	defaultQueueKey = "kai.scheduler/queue"
	defaultShardKey = "kai.scheduler/node-pool"
	// defaultShard is KAI's name for the nodes without a shard.
	defaultShard = "default"
)

// Placements returns the placements of a project, in the order of its pools: those whose scheduler is KAI.
func Placements(project string, pools []input.NodePool) []Placement {
	var placements []Placement
	for i := range pools {
		pool := &pools[i]
		if pool.Scheduler != v1alpha1.SchedulerKAI {
			continue
		}
		placement := Placement{
			Pool: pool.Name, Queue: project + "." + pool.Name, Closed: pool.Unsupported != "", UnitsPerGPU: unitsPerGPU(pool),
			queueKey: poolSetting(pool, "queueLabelKey", defaultQueueKey),
			shardKey: poolSetting(pool, "nodePoolLabelKey", defaultShardKey),
		}
		placement.Shard = pool.NodeSelector[placement.shardKey]
		placements = append(placements, placement)
	}
	return placements
}

// unitsPerGPU is units_per_gpu of policies/core/lib/kai.rego.
func unitsPerGPU(pool *input.NodePool) (units int64) {
	if pool.Sharing != v1alpha1.SharingMIG {
		return 1
	}
	for _, model := range pool.Products {
		for _, profile := range model.Profiles {
			units = max(units, profile.Compute)
		}
	}
	return cmp.Or(units, 7)
}

func poolSetting(pool *input.NodePool, name, defaultValue string) string {
	return cmp.Or(pool.Settings[name], defaultValue)
}

// Labels returns the labels of a pod or group in the placement. An empty value means no label of that key.
func (p Placement) Labels() map[string]string {
	return map[string]string{p.queueKey: p.Queue, p.shardKey: p.Shard}
}

// DepartmentQueue returns the department's queue in the pool, the parent of Queue.
func (p Placement) DepartmentQueue(department string) string {
	return "department." + department + "." + p.Pool
}

// ShardName returns the name of the shard in KAI's conditions.
func (p Placement) ShardName() string { return cmp.Or(p.Shard, defaultShard) }

// FindPlacement returns the placement with a queue.
func FindPlacement(placements []Placement, queue string) (Placement, bool) {
	for _, placement := range placements {
		if placement.Queue == queue {
			return placement, true
		}
	}
	return Placement{}, false
}

// DefaultPlacement returns the first placement that accepts pods, or else the first one.
func DefaultPlacement(placements []Placement) (Placement, bool) {
	for _, placement := range placements {
		if !placement.Closed {
			return placement, true
		}
	}
	if len(placements) > 0 {
		return placements[0], true
	}
	return Placement{}, false
}
