// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// PodResolver resolves processes to pods, in rounds. It reads the cgroup of a process each time, since the
// kernel gives the PIDs of ended processes to others, and parses it only if it changed. It is not safe for
// concurrent use.
type PodResolver struct {
	// Proc is the root of the host's procfs.
	Proc string

	round     uint64
	processes map[uint32]*resolvedProcess
}

// resolvedProcess is a process with its cgroup: the first and the last round in which the PID had it.
type resolvedProcess struct {
	cgroup      string
	pods        []types.UID
	first, last uint64
}

// NextRound begins a round, and forgets the processes that the last one did not resolve.
func (r *PodResolver) NextRound() {
	for pid, p := range r.processes {
		if p.last != r.round {
			delete(r.processes, pid)
		}
	}
	r.round++
}

// Resolve returns the UIDs of the pods in which a process runs, the outermost first; none outside of pods.
// settled reports whether the PID had the same cgroup in the round before: else it may have been given to
// another process since the driver reported it. The error wraps fs.ErrNotExist if the process ended.
func (r *PodResolver) Resolve(pid uint32) (pods []types.UID, settled bool, err error) {
	text, err := os.ReadFile(filepath.Join(r.Proc, strconv.FormatUint(uint64(pid), 10), "cgroup"))
	if err != nil {
		delete(r.processes, pid)
		return nil, false, fmt.Errorf("read pod of process %d: %w", pid, err)
	}
	p := r.processes[pid]
	if p == nil || p.cgroup != string(text) {
		if r.processes == nil {
			r.processes = map[uint32]*resolvedProcess{}
		}
		p = &resolvedProcess{cgroup: string(text), pods: ParsePodUIDs(string(text)), first: r.round}
		r.processes[pid] = p
	}
	p.last = r.round
	return p.pods, p.first < r.round, nil
}
