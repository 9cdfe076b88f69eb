// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kaigroup

import (
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/facts"
)

// Place is where a project's groups may be: one of its node pools.
type Place struct {
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
	usualQueueKey = "kai.scheduler/queue"
	usualShardKey = "kai.scheduler/node-pool"
	// usualShard is how KAI calls the nodes that are in no shard.
	usualShard = "default"
)

// Places are those of a project, in its order: its pools whose scheduler is KAI.
func Places(project string, pools []facts.Pool) []Place {
	var places []Place
	for i := range pools {
		pool := &pools[i]
		if pool.Scheduler != v1alpha1.SchedulerKAI {
			continue
		}
		place := Place{
			Pool: pool.Name, Queue: project + "." + pool.Name, Closed: pool.Unsupported != "",
			queueKey: setting(pool, "queueLabelKey", usualQueueKey), shardKey: setting(pool, "nodePoolLabelKey", usualShardKey),
		}
		place.Shard = pool.NodeSelector[place.shardKey]
		places = append(places, place)
	}
	return places
}

func setting(pool *facts.Pool, name, usual string) string {
	if found := pool.Settings[name]; found != "" {
		return found
	}
	return usual
}

// Labels are those by which a pod or a group says that it is here; where the value
// is empty, it has none of that key.
func (p Place) Labels() map[string]string {
	return map[string]string{p.queueKey: p.Queue, p.shardKey: p.Shard}
}

// ShardName is the shard as KAI has it in conditions.
func (p Place) ShardName() string {
	if p.Shard == "" {
		return usualShard
	}
	return p.Shard
}

// Find is the place with that queue.
func Find(places []Place, queue string) (Place, bool) {
	for _, place := range places {
		if place.Queue == queue {
			return place, true
		}
	}
	return Place{}, false
}

// First is where a group goes that says nothing of use: the first place that takes
// pods, else the first.
func First(places []Place) (Place, bool) {
	for _, place := range places {
		if !place.Closed {
			return place, true
		}
	}
	if len(places) > 0 {
		return places[0], true
	}
	return Place{}, false
}
