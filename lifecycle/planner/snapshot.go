// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// snapshot is all that a decision is made from.
type snapshot struct {
	pools []pool
	// nodes are those of the pools, sorted by name.
	nodes []node
	// wants are the pods that wait, the most urgent first.
	wants []want
	// past is what the last decision remembered.
	past memory
}

// memory is what is known beside the objects. To lose it delays a decision, and no more.
type memory struct {
	// offered is since when an idle instance is there for a pod.
	offered map[types.UID]time.Time
	// resting are the nodes that were changed.
	resting map[string]pause
	// whole are nodes of which pods have whole GPUs, and nobody says which, until when
	// that is believed.
	whole map[string]time.Time
	// distrusted are the GPUs whose layout could not be applied.
	distrusted map[v1alpha1.GPUUUID]pause
}

// pause is until when nothing is done, after how many failures.
type pause struct {
	until    time.Time
	failures int
}

// after is the pause after another failure, which begins with so long.
func (p pause) after(now time.Time, first, longest time.Duration) pause {
	length := first << min(p.failures, 10)
	return pause{until: now.Add(min(length, longest)), failures: p.failures + 1}
}

// pool is a node pool that is cut.
type pool struct {
	name   string
	resets v1alpha1.MIGResets
	// layout is nil where the pool is planned from demand.
	layout []v1alpha1.MIGLayout
}

func (p *pool) static() bool { return p.layout != nil }

// node is one of a pool's nodes.
type node struct {
	name string
	// pool is the index of its pool.
	pool int
	// taint is nil where the node is not being changed.
	taint *taint
	// unfit is why nothing can be cut there, by the node's labels; empty where it can.
	unfit string
	// published are the node's allocatable GPUs and MIG instances.
	published amounts
	// machine is what the agent reports and the spec says; nil without a GPUNode.
	machine *machine
	// claims are the node's pods, read from the API server itself; known only where
	// the spec may be written.
	claims []claim
	known  bool
}

// taint is the one that keeps pods from a node while it is changed.
type taint struct {
	// since is when it was put on; zero where nobody says.
	since time.Time
	// generation is that of the GPUNode then; -1 where nobody says.
	generation int64
}

// claim is a pod that is bound to a node and has not ended.
type claim struct {
	uid   types.UID
	bound time.Time
	// asks are the MIG instances that it asks for, and whole how many whole GPUs.
	asks  []ask
	whole int
}

// ask is so many instances of a profile.
type ask struct {
	profile v1alpha1.MIGProfile
	count   int
}

// want is a pod that waits for MIG instances.
type want struct {
	uid             types.UID
	namespace, name string
	asks            []ask
	priority        int32
	created, since  time.Time
	// excused tells that its scheduler does not miss the instances that it asks for.
	excused bool
	// order are the indices of the pools that it may use, those that it likes first.
	order []int
	// where tells of each node whether the pod may be there.
	where []bool
}
