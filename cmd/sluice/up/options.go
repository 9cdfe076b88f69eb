// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"
	"io"
	"path/filepath"
)

const (
	// DefaultNodes is one node with whole GPUs and one whose GPUs are cut as pods ask.
	DefaultNodes = 2
	// DefaultNodesKueue is two nodes with whole GPUs, which the sample's teams
	// share, and one whose GPUs are cut.
	DefaultNodesKueue = 3
	// MaxNodes is as many simulated nodes, each with its agent, as two cores carry with
	// ease.
	MaxNodes = 50
)

// Options of a run.
type Options struct {
	// Dir is the cluster's folder. It must not exist, be empty, or be an earlier
	// cluster's, which is then taken up again. Its absolute path may have about 68
	// bytes: sockets lie below it.
	Dir string
	// Port of the API server on 127.0.0.1; 0 for the one it had before, or a free one.
	Port int
	// Scheduler is one of Schedulers; empty for the one it had before, or the first.
	// A cluster keeps it.
	Scheduler string
	// Nodes is how many simulated DGX nodes there are, 1 to MaxNodes. The GPUs
	// of every second one are in MIG mode, with Kueue of every third.
	Nodes int
	// TimeScale is how many times as fast as real time policy time runs, 1 to
	// [clock.MaxScale]; 0 for the scale it had before, or 1.
	TimeScale float64
	// AnyNodes: nobody has asked for Nodes. It is what the scheduler's sample has,
	// and a cluster that runs already may have another number.
	AnyNodes bool
	// Detach returns once all is ready, and leaves it running.
	Detach bool
	// Output is where progress and the screen go.
	Output io.Writer
}

func (o Options) validated() (Options, error) {
	if o.Dir == "" {
		return o, fmt.Errorf("--dir: want a folder")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("--dir %s: %w", o.Dir, err)
	}
	if o.Scheduler, err = chooseScheduler(dir, o.Scheduler); err != nil {
		return o, err
	}
	if o.AnyNodes {
		o.Nodes = o.sample().usual
	}
	if o.Nodes < 1 || o.Nodes > MaxNodes {
		return o, fmt.Errorf("--nodes %d: want a number from 1 to %d", o.Nodes, MaxNodes)
	}
	if o.Port < 0 || o.Port > 65535 {
		return o, fmt.Errorf("--port %d: want a number from 1 to 65535, or 0 for a free port", o.Port)
	}
	if o.TimeScale != 0 {
		if err := CheckScale(o.TimeScale); err != nil {
			return o, fmt.Errorf("--time-scale %w", err)
		}
	}
	if behind, most := followed(dir), maxDir(o.nodes()); len(behind) > most {
		return o, fmt.Errorf("--dir %s: its absolute path has %d bytes; want at most %d with %d nodes, as a socket of each node lies below it: name a shorter one",
			behind, len(behind), most, o.Nodes)
	}
	o.Dir = dir
	return o, nil
}

// followed is a path without symbolic links, also where its end is not there yet.
func followed(path string) string {
	behind, err := filepath.EvalSymlinks(path)
	if err == nil {
		return behind
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(followed(parent), filepath.Base(path))
}
