// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/build"
	"sluice.dev/test/cluster/fakekubelet"
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
	// NodesUnset: nobody has asked for Nodes. It is what the scheduler's sample has,
	// and a cluster that runs already may have another number.
	NodesUnset bool
	// Detach returns once all is ready, and leaves it running.
	Detach bool
	// Output is where progress and the screen go.
	Output io.Writer
}

func (o Options) validate() (Options, error) {
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
	if o.NodesUnset {
		o.Nodes = o.sample().defaultNodes
	}
	if o.Nodes < 1 || o.Nodes > MaxNodes {
		return o, fmt.Errorf("--nodes %d: want a number from 1 to %d", o.Nodes, MaxNodes)
	}
	if o.Port < 0 || o.Port > 65535 {
		return o, fmt.Errorf("--port %d: want a number from 1 to 65535, or 0 for a free port", o.Port)
	}
	if o.TimeScale != 0 {
		if err := ValidateScale(o.TimeScale); err != nil {
			return o, fmt.Errorf("--time-scale %w", err)
		}
	}
	if behind, most := resolveSymlinks(dir), maxDirLength(o.nodes()); len(behind) > most {
		return o, fmt.Errorf("--dir %s: its absolute path has %d bytes; want at most %d with %d nodes, as a socket of each node lies below it: name a shorter one",
			behind, len(behind), most, o.Nodes)
	}
	o.Dir = dir
	return o, nil
}

// resolveSymlinks is a path without symbolic links, also where its end is not there yet.
func resolveSymlinks(path string) string {
	behind, err := filepath.EvalSymlinks(path)
	if err == nil {
		return behind
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(resolveSymlinks(parent), filepath.Base(path))
}

// schedulerFile is in a cluster's folder, and says which scheduler it has.
const schedulerFile = "scheduler"

// chooseScheduler returns the scheduler of the cluster in dir, which is one for
// all its life: what was asked for, or what it had before, or the default.
func chooseScheduler(dir, asked string) (string, error) {
	if asked != "" {
		if err := validateScheduler(asked); err != nil {
			return "", err
		}
	}
	kept, err := readScheduler(dir)
	switch {
	case err != nil:
		return "", err
	case kept == "" && asked == "":
		return Schedulers[0], nil
	case kept == "":
		return asked, nil
	case asked != "" && asked != kept:
		who := currentCaller()
		return "", fmt.Errorf("--scheduler %s: the cluster in %s has %s, and keeps it; name another folder with --dir, or remove this one first, with `%s down --dir %[2]s`",
			asked, who.shellPath(dir), kept, who.program)
	default:
		return kept, nil
	}
}

func validateScheduler(name string) error {
	if !slices.Contains(Schedulers, name) {
		return fmt.Errorf("--scheduler %s: want %s", shellQuote(name), strings.Join(Schedulers, " or "))
	}
	return nil
}

// readScheduler is that of the cluster in dir; empty where there is no cluster.
func readScheduler(dir string) (string, error) {
	if !cluster.Exists(dir) {
		return "", nil
	}
	path := filepath.Join(dir, schedulerFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, reportFile)); err == nil {
			return Schedulers[0], nil // it was started when there was no other
		}
		return "", nil // its first start was cut short
	}
	if err != nil {
		return "", fmt.Errorf("the cluster's scheduler: %w", err)
	}
	kept := strings.TrimSpace(string(raw))
	if !slices.Contains(Schedulers, kept) {
		return "", fmt.Errorf("the cluster's scheduler: %s says %q; want %s in it", path, kept, strings.Join(Schedulers, " or "))
	}
	return kept, nil
}

// saveScheduler notes it in the cluster's folder for the next start.
func (o Options) saveScheduler() error {
	path := filepath.Join(o.Dir, schedulerFile)
	if err := os.WriteFile(path+".new", []byte(o.Scheduler+"\n"), 0o600); err != nil {
		return fmt.Errorf("noting the scheduler: %w", err)
	}
	return os.Rename(path+".new", path)
}

const (
	schedulerKube  = string(v1alpha1.SchedulerKube)
	schedulerKueue = string(v1alpha1.SchedulerKueue)
)

// Schedulers are those that a cluster may be started with, the default first.
var Schedulers = []string{schedulerKube, schedulerKueue}

// sampleSpec is what a cluster starts with: machines, and who shares them.
type sampleSpec struct {
	// folder is its kustomization, name what people call it.
	folder, name string
	// programs are built beside those that every cluster has.
	programs []string
	// pool is that of the i-th machine, from 1 on, and whether its GPUs are in MIG mode.
	pool func(i int) (name string, cut bool)
	// defaultNodes is how many machines there are where nobody says.
	defaultNodes int
}

// sampleSpecs are by the scheduler that their pools have.
var sampleSpecs = map[string]sampleSpec{
	schedulerKube: {
		folder: manifests.University, name: "university", defaultNodes: DefaultNodes,
		pool: func(i int) (string, bool) {
			if i%2 == 0 {
				return "dgx-mig", true
			}
			return "dgx", false
		},
	},
	schedulerKueue: {
		folder: manifests.Fairness, name: "four teams", defaultNodes: DefaultNodesKueue,
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
func (o Options) sample() sampleSpec { return sampleSpecs[o.Scheduler] }

// nodes describes the simulated machines: dgx-1, dgx-2, ...
func (o Options) nodes() []fakekubelet.Node { return o.sample().nodes(o.Nodes) }

func (s sampleSpec) nodes(n int) []fakekubelet.Node {
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
