// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import "time"

// Times, all in machine time.
const (
	// resolution is how exact times in the API are: what is said to have been then may
	// have been so much later.
	resolution = time.Second
	// ripe is for how long a pod must have been unschedulable before anything is cut
	// for it: pods come in batches, and one plan for all is better than many.
	ripe = time.Second
	// settle is for how long no pod must have been bound to a tainted node: a
	// scheduler that had not seen the taint has ended by then.
	settle = 5 * time.Second
	// grace is how long a pod that could use an idle instance is left to its
	// scheduler before something else is cut for it.
	grace = 15 * time.Second
	// patience is after how long a pod for which a node is to be changed no longer
	// waits for those that could use the node's idle instances as they are.
	patience = 30 * time.Second
	// breather is the least time from one change of a node to the next. It doubles with
	// each change that came to nothing, up to longestBreather.
	breather        = 10 * time.Second
	longestBreather = 5 * time.Minute
	// distrust is for how long nothing is planned on a GPU whose layout could not be
	// applied. It doubles with each failure, up to longestDistrust.
	distrust        = time.Minute
	longestDistrust = 16 * time.Minute
	// agentTime is how long an agent may take over a layout, and publishTime how long
	// the node's allocatable may take to agree with it.
	agentTime   = 2 * time.Minute
	publishTime = time.Minute
	// fresh is how old a taint may be when the spec is written, so that the agent has
	// its time: a node that was drained is tainted anew.
	fresh = 30 * time.Second
	// silent is after how long without a sample an agent is not believed to be there.
	silent = 3 * time.Minute
)
