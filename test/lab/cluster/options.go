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

// Names of the components of a cluster, in Processes and in Options.ExtraArgs.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// controlPlaneComponents lists the components in the order in which they start.
var controlPlaneComponents = []string{Etcd, APIServer, ControllerManager, Scheduler}

// defaultReadyTimeout is for a machine on which much else runs. It only delays the report of a failure.
const defaultReadyTimeout = 5 * time.Minute

// Options configures a cluster. The zero value runs a cluster in a temporary folder, on a
// free port, and leaves no files.
type Options struct {
	// Dir is the folder of all files that the cluster writes: etcd's data, keys,
	// kubeconfigs, logs. Dir may be missing, empty, or the folder of an earlier cluster.
	// Start resumes an earlier cluster with the same objects, the same certificate
	// authority and, if possible, the same port. Dir gets mode 0700. The default is a new
	// temporary folder, which is removed even if this process is killed.
	Dir string
	// Port is the API server's port on 127.0.0.1. 0 means the port of the earlier cluster
	// in Dir, or else a free one.
	Port int
	// KeepData keeps Dir at Stop, for a later Start. Without it Stop removes all files of
	// the cluster, and Dir if it is empty then.
	KeepData bool
	// Progress receives a line for each step; nil discards them. On a terminal (an
	// *os.File) it shows the elapsed time of the first build.
	Progress io.Writer
	// ExtraArgs holds further arguments by component. They follow the component's own; the
	// last value of a repeated flag counts.
	ExtraArgs map[string][]string
	// Programs are the paths of the components' programs by name. Start builds the programs
	// that are missing here.
	Programs map[string]string
	// ReadyTimeout bounds the time until each component is ready; the default is five
	// minutes.
	ReadyTimeout time.Duration
}

// validate returns the options with defaults and with Dir as an absolute path without
// links. The errors on folder and port speak to a user of the command line, who does not
// know the fields.
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

// checkDir returns an error if dir cannot hold a cluster. Stop removes dir, so dir must not
// hold other files.
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
		// A start that was killed early leaves its lock and an unfinished mark.
		if name := entry.Name(); name != lockFile && name != stateFile+".new" {
			return folderError(dir, fmt.Errorf("has files that are no cluster's (%s); name an empty or a new folder", name))
		}
	}
	return nil
}

// resolveDir returns the absolute path of dir without links. dir need not exist. Removing a
// cluster removes the folder behind the link and keeps the link, which belongs to the user.
func resolveDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return resolveExisting(dir)
}

// resolveExisting resolves the longest part of dir that exists. It terminates: EvalSymlinks
// returns an error for a cycle of links.
func resolveExisting(dir string) (string, error) {
	resolved, err := filepath.EvalSymlinks(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return resolved, err
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
		return dir, nil //nolint:nilerr // dir is no link and does not exist yet
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(parent, target)
	}
	return resolveExisting(target)
}
