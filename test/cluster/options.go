// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Names of the components of a cluster, as they stand in Processes and in
// Options.ExtraArgs.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// controlPlane in the order of its start.
var controlPlane = []string{Etcd, APIServer, ControllerManager, Scheduler}

const defaultReadyTimeout = 2 * time.Minute

// Options of a cluster. The zero value is a cluster in a temporary folder, on a
// free port, that leaves nothing behind.
type Options struct {
	// Dir is the folder of everything that the cluster writes: etcd's data,
	// keys, kubeconfigs, logs. It must not exist, be empty, or be an earlier
	// cluster's, which is then resumed: same objects, same certificate
	// authority, if possible same port. It is made 0700. The default is a new
	// temporary folder, which is removed even if this process is killed.
	Dir string
	// Port of the API server on 127.0.0.1. 0 means the one that Dir's cluster
	// had before, or else a free one.
	Port int
	// KeepData leaves Dir in place at Stop, for a later Start.
	KeepData bool
	// Progress is told what goes on, line by line; nil for silence. On a
	// terminal (an *os.File) the first build's time is shown as it passes.
	Progress io.Writer
	// ExtraArgs are added behind the arguments of a component, by its name;
	// of a flag given twice the last one counts.
	ExtraArgs map[string][]string
	// ReadyTimeout is how long each component may take until it is ready; the
	// default is two minutes.
	ReadyTimeout time.Duration
}

// validated returns the options with defaults and an absolute Dir, or says which
// field is wrong and what to do.
func (o Options) validated() (Options, error) {
	if o.Port < 0 || o.Port > 65535 {
		return o, fmt.Errorf("Options.Port %d: must be from 1 to 65535, or 0 for a free one", o.Port)
	}
	if o.ReadyTimeout < 0 {
		return o, fmt.Errorf("Options.ReadyTimeout %s: must not be negative", o.ReadyTimeout)
	}
	if o.ReadyTimeout == 0 {
		o.ReadyTimeout = defaultReadyTimeout
	}
	for name := range o.ExtraArgs {
		if !slices.Contains(controlPlane, name) {
			return o, fmt.Errorf("Options.ExtraArgs[%q]: no such component; there are %s", name, strings.Join(controlPlane, ", "))
		}
	}
	if o.KeepData && o.Dir == "" {
		return o, errors.New("Options.KeepData without Options.Dir: a temporary folder is not kept; set Dir")
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Dir == "" {
		return o, nil
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("Options.Dir %s: %w", o.Dir, err)
	}
	o.Dir = dir
	return o, nil
}

func (o Options) say(format string, args ...any) {
	fmt.Fprintf(o.Progress, format+"\n", args...)
}

// checkDir says why a cluster cannot be in dir. Stop removes dir with all that is
// in it, so nothing that was there before may be.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("Options.Dir %s: %w", dir, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("Options.Dir %s: is a file; name a folder, or remove the file", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("Options.Dir %s: %w; name a folder that you may read and write", dir, err)
	}
	var foreign string
	for _, entry := range entries {
		switch entry.Name() {
		case stateFile:
			return nil
		case lockFile:
		default:
			foreign = entry.Name()
		}
	}
	if foreign != "" {
		return fmt.Errorf("Options.Dir %s: has files that are no cluster's (%s); name an empty or a new folder", dir, foreign)
	}
	return nil
}
