// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sluice.dev/test/cluster/filelock"
	"sluice.dev/test/cluster/process"
)

const (
	lockFile    = "lock"
	lockTimeout = time.Second
)

// folder is a cluster's Dir, locked.
type folder struct {
	path  string
	lock  *filelock.Lock
	state state
	// guard removes a temporary folder where this process does not.
	guard *guard
}

// openFolder makes dir, or opens it, for this process alone, and ends what a
// killed process has left running there.
func openFolder(o Options) (*folder, error) {
	if o.Dir == "" {
		return temporaryFolder()
	}
	if err := checkDir(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w; name a folder that you may write", folderError(o.Dir, err))
	}
	f, err := lockFolderWithRetry(o.Dir)
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		return nil, folderError(o.Dir, fmt.Errorf("process %d runs a cluster there; stop it, or name another folder", held.PID))
	case err != nil:
		return nil, folderError(o.Dir, err)
	}
	if err := f.prepare(o); err != nil {
		_ = f.lock.Unlock() // the reason for giving up counts
		return nil, folderError(o.Dir, err)
	}
	return f, nil
}

func folderError(dir string, err error) error {
	return fmt.Errorf("the cluster's folder %s: %w", dir, err)
}

// lockFolderWithRetry waits a moment for the lock: a holder that was killed may still
// be about to end.
func lockFolderWithRetry(dir string) (*folder, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	lock, err := filelock.Wait(ctx, filepath.Join(dir, lockFile), nil)
	if err != nil {
		return nil, err
	}
	return &folder{path: dir, lock: lock}, nil
}

func lockFolder(dir string) (*folder, error) {
	lock, err := filelock.Try(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, err
	}
	return &folder{path: dir, lock: lock}, nil
}

func (f *folder) prepare(o Options) error {
	if err := os.Chmod(f.path, 0o700); err != nil {
		return err
	}
	if err := f.readState(); err != nil {
		return err
	}
	// The mark comes first: a start that is killed now can be taken up again.
	if err := f.writeState(); err != nil {
		return err
	}
	ended, err := process.ReapLeftovers(f.path)
	for _, record := range ended {
		o.progressf("ended %s, process %d, which a killed cluster had left in %s", record.Name, record.PID, f.path)
	}
	return err
}

// readState leaves the state empty where there is none yet.
func (f *folder) readState() error {
	read, err := readMark(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f.state = read
	f.state.Temporary = false // it has been named
	return nil
}

func (f *folder) writeState() error { return writeMark(f.path, f.state) }

// pathOf returns a path in the folder.
func (f *folder) pathOf(elements ...string) string {
	return filepath.Join(append([]string{f.path}, elements...)...)
}

// makeDir makes a folder in the folder.
func (f *folder) makeDir(elements ...string) (string, error) {
	dir := f.pathOf(elements...)
	return dir, os.MkdirAll(dir, 0o700)
}

// close gives the folder back, and removes it unless it is kept. The error is a
// *LeftError where files that are no cluster's keep it.
func (f *folder) close(keep bool) error {
	var removed error
	if !keep {
		// With the lock in it, held to the last: nobody finds half a folder.
		removed = removeFolder(f.path, f.state.Temporary)
	}
	// The lock's file may be gone with the folder; what counts is that it is dropped.
	_ = f.lock.Unlock()
	f.guard.dismiss()
	return removed
}

// writeFile writes a file of 0600 whole or not at all.
func writeFile(path string, content []byte) error {
	aside := path + ".new"
	if err := os.WriteFile(aside, content, 0o600); err != nil {
		return err
	}
	return os.Rename(aside, path)
}

const (
	stateFile = "cluster.json" // also the mark by which a cluster's folder is known

	markVersion = "sim.sluice.dev/v1alpha1"
	markKind    = "EmbeddedCluster"
	// maxMarkSize is far above what a mark needs, in bytes.
	maxMarkSize = 64 << 10
)

// state is what a cluster remembers from one start to the next. Its version and
// kind make the file a mark: others have a cluster.json too.
type state struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Temporary is a folder that we have made and named, and so may sweep up.
	Temporary bool  `json:"temporary,omitempty"`
	Ports     ports `json:"ports"`
}

// readMark returns the state in dir. The error wraps fs.ErrNotExist where there
// is none; any other one means that the folder must not be taken for a cluster's.
func readMark(dir string) (state, error) {
	path := filepath.Join(dir, stateFile)
	info, err := os.Lstat(path)
	if err != nil {
		return state{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxMarkSize {
		return state{}, notAClusterError(errors.New("it is no file of a few lines"))
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return state{}, err
	}
	return parseMark(content)
}

func parseMark(content []byte) (state, error) {
	var s state
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return state{}, notAClusterError(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return state{}, notAClusterError(errors.New("something follows the object"))
	}
	if s.APIVersion != markVersion || s.Kind != markKind {
		return state{}, notAClusterError(fmt.Errorf("it is apiVersion %q, kind %q, not %s, %s", s.APIVersion, s.Kind, markVersion, markKind))
	}
	return s, nil
}

func notAClusterError(reason error) error {
	return fmt.Errorf("its %s is no cluster's, or one's of another version (%w); "+
		"name another folder, or remove this one by hand if it was a cluster's", stateFile, reason)
}

func writeMark(dir string, s state) error {
	s.APIVersion, s.Kind = markVersion, markKind
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, stateFile), append(content, '\n'))
}
