// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sluice.dev/test/cluster/filelock"
	"sluice.dev/test/cluster/process"
)

const (
	lockFile  = "lock"
	stateFile = "cluster.json" // also the mark by which a cluster's folder is known

	lockPatience = time.Second
)

// folder is a cluster's Dir, locked.
type folder struct {
	path  string
	lock  *filelock.Lock
	state state
	// temporary is the guard of a folder that is removed in any case.
	temporary *guard
}

// state is what a cluster remembers from one start to the next.
type state struct {
	Ports ports `json:"ports"`
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
		return nil, fmt.Errorf("Options.Dir %s: %w; name a folder that you may write", o.Dir, err)
	}
	f, err := lockFolderSoon(o.Dir)
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		return nil, fmt.Errorf("Options.Dir %s: process %d runs a cluster there; stop it, or name another folder", o.Dir, held.PID)
	case err != nil:
		return nil, fmt.Errorf("Options.Dir %s: %w", o.Dir, err)
	}
	if err := f.prepare(o); err != nil {
		_ = f.lock.Unlock() // the reason for giving up counts
		return nil, fmt.Errorf("Options.Dir %s: %w", o.Dir, err)
	}
	return f, nil
}

// lockFolderSoon waits a moment for the lock: a holder that was killed may still
// be about to end.
func lockFolderSoon(dir string) (*folder, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
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
		o.say("ended %s, process %d, which a killed cluster had left in %s", record.Name, record.PID, f.path)
	}
	return err
}

func (f *folder) readState() error {
	content, err := os.ReadFile(f.in(stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, &f.state); err != nil {
		return fmt.Errorf("%s: %w (remove the folder to begin anew)", f.in(stateFile), err)
	}
	return nil
}

func (f *folder) writeState() error {
	content, err := json.MarshalIndent(f.state, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(f.in(stateFile), append(content, '\n'))
}

// in returns a path in the folder.
func (f *folder) in(elements ...string) string {
	return filepath.Join(append([]string{f.path}, elements...)...)
}

// makeSub makes a folder in the folder.
func (f *folder) makeSub(elements ...string) (string, error) {
	dir := f.in(elements...)
	return dir, os.MkdirAll(dir, 0o700)
}

// close gives the folder back, and removes it unless it is kept.
func (f *folder) close(keep bool) error {
	var removed error
	if !keep {
		// With the lock in it, held to the last: nobody finds half a folder.
		removed = os.RemoveAll(f.path)
	}
	// The lock's file may be gone with the folder; what counts is that it is dropped.
	_ = f.lock.Unlock()
	f.temporary.dismiss()
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
