// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// controlPlaneComponents in the order of its start.
var controlPlaneComponents = []string{Etcd, APIServer, ControllerManager, Scheduler}

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
	// KeepData leaves Dir in place at Stop, for a later Start. Without it Stop
	// removes all that a cluster makes there, and Dir if nothing else is in it.
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

// validate returns the options with defaults and Dir as the absolute path of the
// folder itself, or says which is wrong and what to do. Folder and port are a
// person's choice, who knows nothing of fields.
func (o Options) validate() (Options, error) {
	if o.Port < 0 || o.Port > 65535 {
		return o, fmt.Errorf("port %d: must be from 1 to 65535, or 0 for a free one", o.Port)
	}
	if o.ReadyTimeout < 0 {
		return o, fmt.Errorf("Options.ReadyTimeout %s: must not be negative", o.ReadyTimeout)
	}
	if o.ReadyTimeout == 0 {
		o.ReadyTimeout = defaultReadyTimeout
	}
	for name := range o.ExtraArgs {
		if !slices.Contains(controlPlaneComponents, name) {
			return o, fmt.Errorf("Options.ExtraArgs[%q]: no such component; there are %s", name, strings.Join(controlPlaneComponents, ", "))
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
	dir, err := resolveDir(o.Dir)
	if err != nil {
		return o, folderError(o.Dir, err)
	}
	o.Dir = dir
	return o, nil
}

func (o Options) progressf(format string, args ...any) {
	fmt.Fprintf(o.Progress, format+"\n", args...)
}

// checkDir says why a cluster cannot be in dir. Stop removes dir, so nothing that
// was there before may be.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return folderError(dir, err)
	}
	if !info.IsDir() {
		return folderError(dir, errors.New("is a file; name a folder, or remove the file"))
	}
	if _, err := readMark(dir); !errors.Is(err, os.ErrNotExist) {
		if err != nil {
			return folderError(dir, err)
		}
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%w; name a folder that you may read and write", folderError(dir, err))
	}
	for _, entry := range entries {
		// A start that was killed early leaves its lock, and half a mark.
		if name := entry.Name(); name != lockFile && name != stateFile+".new" {
			return folderError(dir, fmt.Errorf("has files that are no cluster's (%s); name an empty or a new folder", name))
		}
	}
	return nil
}

// resolveDir returns the absolute path of the folder itself where dir is a link or
// lies behind one, also of a folder that does not exist yet. Who removes a
// cluster means what the link points to; the link is a person's, and stays.
func resolveDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return resolveExisting(dir)
}

// resolveExisting ends: a circle of links is an error of EvalSymlinks.
func resolveExisting(dir string) (string, error) {
	behind, err := filepath.EvalSymlinks(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return behind, err
	}
	parent := filepath.Dir(dir)
	if parent == dir {
		return "", err
	}
	if parent, err = resolveExisting(parent); err != nil {
		return "", err
	}
	dir = filepath.Join(parent, filepath.Base(dir))
	target, err := os.Readlink(dir)
	if err != nil {
		return dir, nil //nolint:nilerr // no link, and not there yet
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(parent, target)
	}
	return resolveExisting(target)
}
