// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// PodResolver resolves processes to pods, in rounds. It reads the cgroup of a process each time, since the
// kernel gives the PIDs of ended processes to others, and parses it only if it changed. It is not safe for
// concurrent use.
type PodResolver struct {
	// Proc is the root of the host's procfs.
	Proc string

	round      uint64
	processes  map[uint32]*resolvedProcess
	path, text []byte // buffers of readCgroup
}

// resolvedProcess is a process with its cgroup: the first and the last round in which the PID had it.
type resolvedProcess struct {
	cgroup      string
	pods        []types.UID
	other       *v1alpha1.OtherProcess // nil until it is requested
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
	text, err := r.readCgroup(pid)
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

// Other describes a process outside of pods, which this round resolved; nil if it resolved none. It reads the name
// of the program once.
func (r *PodResolver) Other(pid uint32) *v1alpha1.OtherProcess {
	p := r.processes[pid]
	if p == nil || len(p.pods) > 0 {
		return nil
	}
	if p.other == nil {
		p.other = describeOther(r.Proc, pid, p.cgroup)
	}
	return p.other
}

// maxCgroupBytes limits the text of a cgroup: a dozen paths of at most 4096 bytes (PATH_MAX).
const maxCgroupBytes = 64 << 10

// readCgroup returns the text of /proc/<pid>/cgroup, valid until the next call. It takes half the system calls of
// os.ReadFile, which registers each file with the poller, and no memory.
func (r *PodResolver) readCgroup(pid uint32) ([]byte, error) {
	r.path = append(strconv.AppendUint(append(append(r.path[:0], r.Proc...), '/'), uint64(pid), 10), "/cgroup"...)
	fd, err := retryOnEINTR(func() (int, error) { return unix.Open(string(r.path), unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if r.text == nil {
		r.text = make([]byte, 4096)
	}
	for size := 0; ; {
		n, err := retryOnEINTR(func() (int, error) { return unix.Read(fd, r.text[size:]) })
		if err != nil || n <= 0 {
			return r.text[:size], err
		}
		if size += n; size == len(r.text) {
			if size >= maxCgroupBytes {
				return r.text, nil
			}
			r.text = append(r.text, make([]byte, len(r.text))...)
		}
	}
}

func retryOnEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
