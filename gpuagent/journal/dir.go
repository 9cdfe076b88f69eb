// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	fileName = "journal"
	tempName = "journal.new"
	lockName = "lock"
)

// Dir keeps a journal in a directory of a local file system, which one process alone
// has at a time.
type Dir struct {
	path string
	lock *os.File

	// before is called before each step of a write, and its error is that step's: tests
	// crash there.
	before func(step string) error
}

var _ Store = (*Dir)(nil)

// OpenDir opens the directory, made where it is missing, and keeps other processes from
// it until Close: two agents on one node, as in a rolling update, would each take the
// other's instances for foreign.
func OpenDir(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("open the journal: another agent has %s; wait until it has ended", path)
		}
		return nil, fmt.Errorf("open the journal: lock %s: %w", lock.Name(), err)
	}
	return &Dir{path: path, lock: lock, before: func(string) error { return nil }}, nil
}

// Close lets other processes have the directory.
func (d *Dir) Close() error { return d.lock.Close() }

// Load implements [Store].
func (d *Dir) Load() ([]byte, error) {
	file, err := os.Open(d.name(fileName))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// One byte more than is believed is enough to know that it is too long.
	return io.ReadAll(io.LimitReader(file, maxBytes+1))
}

// Replace implements [Store]: a new file, synced, renamed over the old one, and the
// directory synced, so that the name is as durable as the content.
func (d *Dir) Replace(content []byte) error {
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"write", func() error { return d.writeTemp(content) }},
		{"rename", func() error { return os.Rename(d.name(tempName), d.name(fileName)) }},
		{"sync", d.sync},
	} {
		if err := d.before(step.name); err != nil {
			return err
		}
		if err := step.do(); err != nil {
			return err
		}
	}
	return nil
}

// writeTemp writes the file that is going to be renamed. What a crash has left of an
// earlier one is overwritten.
func (d *Dir) writeTemp(content []byte) error {
	file, err := os.OpenFile(d.name(tempName), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = d.before("sync file")
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func (d *Dir) sync() error {
	dir, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// SetAside implements [Store]. The name is made of the content, so that the same one is
// kept once however often it is found.
func (d *Dir) SetAside() (string, error) {
	content, err := d.Load()
	if err != nil {
		return "", err
	}
	kept := d.name(fmt.Sprintf("%s.unbelieved-%.4x", fileName, sha256.Sum256(content)))
	if err := os.Link(d.name(fileName), kept); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return kept, d.sync()
}

func (d *Dir) name(file string) string { return filepath.Join(d.path, file) }
