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

	"sluice.dev/test/lab/cluster/process"
)

const (
	lockFile    = "lock"
	lockTimeout = time.Second
)

// folder is the locked folder of a cluster.
type folder struct {
	path  string
	lock  *process.Lock
	state state
	// guard removes a temporary folder if this process does not.
	guard *guard
}

// openFolder creates or opens the cluster's folder, locks it, and ends the remaining
// processes of a killed cluster.
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
	var held *process.LockHeldError
	switch {
	case errors.As(err, &held):
		return nil, folderError(o.Dir, fmt.Errorf("process %d runs a cluster there; stop it, or name another folder", held.PID))
	case err != nil:
		return nil, folderError(o.Dir, err)
	}
	if err := f.prepare(o); err != nil {
		_ = f.lock.Unlock() // the first error counts
		return nil, folderError(o.Dir, err)
	}
	return f, nil
}

func folderError(dir string, err error) error {
	return fmt.Errorf("the cluster's folder %s: %w", dir, err)
}

// lockFolderWithRetry waits a moment for the lock: the kernel may still be ending a killed
// holder.
func lockFolderWithRetry(dir string) (*folder, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	lock, err := process.WaitForLock(ctx, filepath.Join(dir, lockFile), nil)
	if err != nil {
		return nil, err
	}
	return &folder{path: dir, lock: lock}, nil
}

func lockFolder(dir string) (*folder, error) {
	lock, err := process.TryLock(filepath.Join(dir, lockFile))
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
	// Write the mark first: the next start can then resume this one if it is killed.
	if err := f.writeState(); err != nil {
		return err
	}
	ended, err := process.ReapLeftovers(f.path)
	for _, record := range ended {
		o.progressf("ended %s, process %d, which a killed cluster had left in %s", record.Name, record.PID, f.path)
	}
	return err
}

// readState leaves the state empty if there is no mark yet.
func (f *folder) readState() error {
	mark, err := readMark(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f.state = mark
	f.state.Temporary = false // the user has named it
	return nil
}

func (f *folder) writeState() error { return writeMark(f.path, f.state) }

// pathOf returns a path in the folder.
func (f *folder) pathOf(elements ...string) string {
	return filepath.Join(append([]string{f.path}, elements...)...)
}

// makeDir creates a subfolder.
func (f *folder) makeDir(elements ...string) (string, error) {
	dir := f.pathOf(elements...)
	return dir, os.MkdirAll(dir, 0o700)
}

// close unlocks the folder, and removes it unless keep is set. The error is a *LeftError if
// other files keep the folder.
func (f *folder) close(keep bool) error {
	var removed error
	if !keep {
		// The lock is held until the end, so that no other process finds half a folder.
		removed = removeFolder(f.path, f.state.Temporary)
	}
	// Unlock may fail because the lock file is gone; it releases the lock anyway.
	_ = f.lock.Unlock()
	f.guard.dismiss()
	return removed
}

// writeFile writes a file of mode 0600 atomically.
func writeFile(path string, content []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

const (
	stateFile = "cluster.json" // also the mark that identifies a cluster's folder

	markVersion = "sim.sluice.dev/v1alpha1"
	markKind    = "EmbeddedCluster"
	// maxMarkSize is far above the size of a mark, in bytes.
	maxMarkSize = 64 << 10
)

// state is the data that a cluster keeps from one start to the next. Its version and kind
// distinguish the file from another program's cluster.json.
type state struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Temporary marks a folder that this package named and may remove.
	Temporary bool  `json:"temporary,omitempty"`
	Ports     ports `json:"ports"`
}

// readMark returns the state in dir. The error wraps fs.ErrNotExist if dir has no mark.
// After any other error dir must not be treated as a cluster's folder.
func readMark(dir string) (state, error) {
	path := filepath.Join(dir, stateFile)
	info, err := os.Lstat(path)
	if err != nil {
		return state{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxMarkSize {
		return state{}, notAClusterError(errors.New("it is not a small regular file"))
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
		return state{}, notAClusterError(errors.New("trailing data after the object"))
	}
	if s.APIVersion != markVersion || s.Kind != markKind {
		return state{}, notAClusterError(fmt.Errorf("it is apiVersion %q, kind %q, not %s, %s", s.APIVersion, s.Kind,
			markVersion, markKind))
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
