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
	"sluice.dev/cmd/sluice/installation"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/test/lab/cluster"
)

// Options of a run.
type Options struct {
	// Dir is the cluster's folder: a new one, an empty one, or that of an earlier run,
	// which continues. Its absolute path may have about 68 bytes, since it holds
	// sockets.
	Dir string
	// Port of the API server on 127.0.0.1; 0 for the earlier one, or a free one.
	Port int
	// Scheduler is one of Schedulers; empty for the earlier one, or the first. A
	// cluster keeps its scheduler.
	Scheduler string
	// Nodes is the number of simulated DGX nodes, 1 to MaxNodes. Every second node has
	// its GPUs in MIG mode; with Kueue, every third.
	Nodes int
	// TimeScale is the speed of policy time, 1 to [policytime.MaxScale]; 0 for the
	// earlier one, or 1.
	TimeScale float64
	// NodesUnset replaces Nodes by the default of the scheduler's sample.
	NodesUnset bool
	// Replicas are the numbers of pods of the components, 0 for 1.
	Replicas installation.Replicas
	// Detach returns when the cluster is ready, and leaves it running.
	Detach bool
	// Output receives progress and the screen.
	Output io.Writer
}

// validate returns the options with an absolute folder and all defaults.
func (o Options) validate() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("--dir: want a folder")
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
	if err := o.Replicas.Validate(); err != nil {
		return o, err
	}
	if o.TimeScale != 0 {
		if err := ValidateScale(o.TimeScale); err != nil {
			return o, fmt.Errorf("--time-scale %w", err)
		}
	}
	if resolved, most := resolveSymlinks(dir), maxDirLength(o.nodes()); len(resolved) > most {
		return o, fmt.Errorf("--dir %s: its absolute path has %d bytes; want at most %d with %d nodes, because it holds a socket of each node",
			resolved, len(resolved), most, o.Nodes)
	}
	o.Dir = dir
	return o, nil
}

// resolveSymlinks returns a path without symbolic links. The end of the path need
// not exist.
func resolveSymlinks(path string) string {
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil {
		return resolved
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(resolveSymlinks(parent), filepath.Base(path))
}

const (
	schedulerKube  = string(v1alpha1.SchedulerKube)
	schedulerKueue = string(v1alpha1.SchedulerKueue)
)

// Schedulers are the schedulers of a cluster, the default first.
var Schedulers = []string{schedulerKube, schedulerKueue}

// schedulerFile has the scheduler of the cluster in the same folder.
const schedulerFile = "scheduler"

// chooseScheduler returns the scheduler of the cluster in dir: its own, the
// requested one for a new cluster, or the default.
func chooseScheduler(dir, requested string) (string, error) {
	if requested != "" {
		if err := validateScheduler(requested); err != nil {
			return "", err
		}
	}
	kept, err := readScheduler(dir)
	switch {
	case err != nil:
		return "", err
	case kept == "" && requested == "":
		return Schedulers[0], nil
	case kept == "":
		return requested, nil
	case requested != "" && requested != kept:
		who := currentCaller()
		return "", fmt.Errorf("--scheduler %s: the cluster in %s keeps its scheduler %s; "+
			"name another folder with --dir, or remove this cluster with `%s down --dir %[2]s`", requested, who.shellPath(dir), kept, who.program)
	default:
		return kept, nil
	}
}

func validateScheduler(name string) error {
	if !slices.Contains(Schedulers, name) {
		return fmt.Errorf("--scheduler %s: want %s", printer.ShellQuote(name), strings.Join(Schedulers, " or "))
	}
	return nil
}

// readScheduler returns the scheduler of the cluster in dir, and an empty string if
// there is no cluster.
func readScheduler(dir string) (string, error) {
	if !cluster.Exists(dir) {
		return "", nil
	}
	path := filepath.Join(dir, schedulerFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, reportFile)); err == nil {
			return Schedulers[0], nil // from a version with one scheduler
		}
		return "", nil // its first start was interrupted
	}
	if err != nil {
		return "", fmt.Errorf("read scheduler: %w", err)
	}
	kept := strings.TrimSpace(string(raw))
	if !slices.Contains(Schedulers, kept) {
		return "", fmt.Errorf("read scheduler: %s has %q; want %s", path, kept, strings.Join(Schedulers, " or "))
	}
	return kept, nil
}

// saveScheduler writes the scheduler for the next run.
func (o Options) saveScheduler() error {
	return writeFileAtomically(filepath.Join(o.Dir, schedulerFile), []byte(o.Scheduler+"\n"))
}

func writeFileAtomically(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
