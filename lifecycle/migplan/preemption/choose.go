// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preemption chooses the pods that give way to a pod with a guarantee whose MIG profile no node offers.
//
// [Choose] is a pure function over the GPUs that the planner may partition and the running pods that hold their
// instances. It evicts nothing: package planner announces the victims, and package eviction evicts them.
package preemption

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/gpuagent/mig"
)

// Pod is a pod that holds an instance.
type Pod struct {
	UID  types.UID
	Name types.NamespacedName
	// Priority is its priority, and Preemptible reports whether its class is one of Sluice's preemptible ones.
	Priority    int32
	Preemptible bool
	// Governed reports whether it belongs to a project.
	Governed bool
	// Running is false until a container has started.
	Running bool
	// Terminating reports whether it is being deleted. It is no victim, and its slices become free.
	Terminating bool
	// GraceEndsAt is when the grace period of a pod that terminates ends, in machine time.
	GraceEndsAt time.Time
	// OverShare reports whether its agent found that it uses more than its share.
	OverShare bool
	// StartedAt is when it started, in machine time.
	StartedAt time.Time
	// Root identifies its root workload or group.
	Root string
	// Milli is its charge in thousandths of GPUs.
	Milli workload.Milli
}

// Instance is an instance of a GPU and the pod that holds it.
type Instance struct {
	mig.Instance
	// Holder is empty if no pod is known to hold the instance. It is then free if its use is mig.Idle.
	Holder types.UID
}

// GPU is a GPU in MIG mode on which the claimant may run.
type GPU struct {
	Node string
	UUID v1alpha1.GPUUUID
	// Model is its model, and Profile the claimant's profile on it.
	Model   *mig.Model
	Profile *mig.Profile
	// Instances are its instances; those of other programs have no holder and are in use.
	Instances []Instance
	// MinimumRuntime is the time that each pod of its pool may run before it is a victim.
	MinimumRuntime time.Duration
}

// Choice is a place for the claimant and the pods that give way. There are no victims if all holders terminate
// already.
type Choice struct {
	Node    string
	GPU     v1alpha1.GPUUUID
	Start   int
	Victims []Pod
}

// Refusal says why nothing can be preempted.
type Refusal struct {
	Reason string
	// RetryAt is when a pod has run for its minimum runtime; zero for never.
	RetryAt time.Time
}

// Choose returns the place whose victims are the best to preempt for a claimant of a priority: those over their
// share first, then the lowest priorities, the fewest root workloads and the least lost work. A victim has a lower
// priority and a preemptible class, belongs to a project, and has run for the minimum runtime. pods returns the
// pod of a UID.
func Choose(priority int32, gpus []GPU, pods func(types.UID) (Pod, bool), now time.Time) (Choice, *Refusal) {
	var best Choice
	var least cost
	found := false
	refusal := &Refusal{Reason: "no GPU that the pod may use has its profile"}
	for i := range gpus {
		g := &gpus[i]
		for _, start := range g.Profile.Starts {
			victims, obstacle := g.victims(start, priority, pods, now)
			if obstacle != nil {
				refusal.note(obstacle)
				continue
			}
			choice := Choice{Node: g.Node, GPU: g.UUID, Start: start, Victims: victims}
			if c := costOf(victims, now); !found || c.compare(&least) < 0 {
				best, least, found = choice, c, true
			}
		}
	}
	if !found {
		return Choice{}, refusal
	}
	return best, nil
}

// stuckAfter is the time after its grace period, in machine time, for which the slices of a pod that terminates count as
// about to become free.
const stuckAfter = 5 * time.Minute

// note keeps the obstacle that passes first.
func (r *Refusal) note(obstacle *Refusal) {
	if !obstacle.RetryAt.IsZero() && (r.RetryAt.IsZero() || obstacle.RetryAt.Before(r.RetryAt)) {
		*r = *obstacle
	} else if r.RetryAt.IsZero() {
		r.Reason = obstacle.Reason
	}
}

// victims returns the pods that must go so that an instance of the profile fits at a start, or what is in the way.
func (g *GPU) victims(start int, priority int32, pods func(types.UID) (Pod, bool), now time.Time) (victims []Pod, obstacle *Refusal) {
	mask := g.Profile.Mask(start)
	layout := []mig.Instance{{Profile: g.Profile, Start: start, Use: mig.InUse}}
	for i := range g.Instances {
		it := &g.Instances[i]
		if it.Mask()&mask == 0 {
			layout = append(layout, it.Instance)
			continue
		}
		if it.Holder == "" && it.Use == mig.Idle {
			continue
		}
		pod, known := pods(it.Holder)
		if it.Holder == "" || !known {
			return nil, &Refusal{Reason: fmt.Sprintf("an instance of a GPU of node %s is in use, and no preemptible pod is known to hold it", g.Node)}
		}
		if pod.Terminating {
			if !pod.GraceEndsAt.IsZero() && now.Sub(pod.GraceEndsAt) >= stuckAfter {
				return nil, &Refusal{Reason: fmt.Sprintf("a pod on node %s does not terminate", g.Node)}
			}
			continue
		}
		if obstacle := pod.obstacle(g.Node, priority, g.MinimumRuntime, now); obstacle != nil {
			return nil, obstacle
		}
		if !slices.ContainsFunc(victims, func(v Pod) bool { return v.UID == pod.UID }) {
			victims = append(victims, pod)
		}
	}
	if err := (&mig.GPU{Model: g.Model, Instances: layout}).Check(); err != nil {
		return nil, &Refusal{Reason: fmt.Sprintf("the profile does not fit beside the other instances of a GPU of node %s", g.Node)}
	}
	slices.SortFunc(victims, func(a, b Pod) int { return cmp.Compare(a.UID, b.UID) })
	return victims, nil
}

// obstacle returns why a pod is no victim of a claimant of a priority; nil if it is one. It does not name the pod: the
// claimant's author reads the reason, and the pod may be another project's.
func (p *Pod) obstacle(node string, priority int32, minimumRuntime time.Duration, now time.Time) *Refusal {
	switch {
	case !p.Governed:
		return &Refusal{Reason: fmt.Sprintf("a pod on node %s belongs to no project", node)}
	case !p.Preemptible:
		return &Refusal{Reason: fmt.Sprintf("a pod on node %s cannot be preempted", node)}
	case p.Priority >= priority:
		return &Refusal{Reason: fmt.Sprintf("a pod on node %s has no lower priority", node)}
	case !p.Running || p.StartedAt.IsZero():
		return &Refusal{Reason: fmt.Sprintf("a pod on node %s is starting", node)}
	}
	if until := p.StartedAt.Add(minimumRuntime); until.After(now) {
		return &Refusal{
			Reason:  fmt.Sprintf("a pod on node %s has run for less than %s; it can be preempted from %s on", node, minimumRuntime, until.UTC().Format(time.RFC3339)),
			RetryAt: until,
		}
	}
	return nil
}

// Evictable reports whether a pod may still be evicted for a claimant of a priority.
func (p *Pod) Evictable(priority int32, minimumRuntime time.Duration, now time.Time) bool {
	return p.obstacle("", priority, minimumRuntime, now) == nil
}

// cost ranks a set of victims, the most important part first.
type cost struct {
	// withinShare is 1 if a victim uses no more than its share, and priority the highest priority of these.
	withinShare int
	priority    int32
	// roots counts the root workloads, lostWork the GPU time in thousandths of GPU seconds.
	roots    int
	lostWork float64
}

func costOf(victims []Pod, now time.Time) (c cost) {
	roots := map[string]bool{}
	for i := range victims {
		v := &victims[i]
		if !v.OverShare {
			if c.withinShare == 0 || v.Priority > c.priority {
				c.priority = v.Priority
			}
			c.withinShare = 1
		}
		roots[v.Root] = true
		c.lostWork += max(0, now.Sub(v.StartedAt).Seconds()) * float64(v.Milli)
	}
	c.roots = len(roots)
	return c
}

func (c *cost) compare(other *cost) int {
	return cmp.Or(
		cmp.Compare(c.withinShare, other.withinShare), cmp.Compare(c.priority, other.priority),
		cmp.Compare(c.roots, other.roots), cmp.Compare(c.lostWork, other.lostWork),
	)
}
