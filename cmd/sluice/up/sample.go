// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
	"sluice.dev/test/cluster/build"
	"sluice.dev/test/cluster/fakekubelet"
)

const (
	schedulerKube  = string(v1alpha1.SchedulerKube)
	schedulerKueue = string(v1alpha1.SchedulerKueue)
)

// Schedulers are those that a cluster may be started with, the default first.
var Schedulers = []string{schedulerKube, schedulerKueue}

// sample is what a cluster starts with: machines, and who shares them.
type sample struct {
	// folder is its kustomization, name what people call it.
	folder, name string
	// programs are built beside those that every cluster has.
	programs []string
	// pool is that of the i-th machine, from 1 on, and whether its GPUs are in MIG mode.
	pool func(i int) (name string, cut bool)
	// usual is how many machines there are where nobody says.
	usual int
}

// samples are by the scheduler that their pools have.
var samples = map[string]sample{
	schedulerKube: {
		folder: manifests.University, name: "university", usual: DefaultNodes,
		pool: func(i int) (string, bool) {
			if i%2 == 0 {
				return "dgx-mig", true
			}
			return "dgx", false
		},
	},
	schedulerKueue: {
		folder: manifests.Fairness, name: "four teams", usual: DefaultNodesKueue,
		programs: []string{build.Kueue},
		pool: func(i int) (string, bool) {
			if i%3 == 0 {
				return "cut", true
			}
			return "whole", false
		},
	},
}

// sample is that of the scheduler, which must be a known one.
func (o Options) sample() sample { return samples[o.Scheduler] }

// nodes describes the simulated machines: dgx-1, dgx-2, ...
func (o Options) nodes() []fakekubelet.Node { return o.sample().nodes(o.Nodes) }

func (s sample) nodes(n int) []fakekubelet.Node {
	list := make([]fakekubelet.Node, 0, n)
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("dgx-%d", i)
		if pool, cut := s.pool(i); cut {
			list = append(list, fakekubelet.DGXA100MIG(name, pool))
		} else {
			list = append(list, fakekubelet.DGXA100(name, pool))
		}
	}
	return list
}
