// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// pollInterval is how often Wait looks again: the kernel's own waiting cannot be
// given up when a context ends.
const pollInterval = 100 * time.Millisecond

// errBusy is what the system's half of this package returns for a lock that
// another open file holds.
var errBusy = errors.New("locked")

// HeldError says that another process holds the lock.
type HeldError struct {
	// Path of the lock file.
	Path string
	// PID of the holder, 0 where it cannot be read.
	PID int
}

// Error names the file and, where known, the process.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is locked by another process", e.Path)
	}
	return fmt.Sprintf("%s is locked by process %d", e.Path, e.PID)
}

// Lock is a held lock. It is dropped by Unlock, or by the end of the process.
type Lock struct{ file *os.File }

// Try takes the lock at path, which is made (0600) where it does not exist.
// Held by another, it returns a *HeldError at once. Two locks on one path
// exclude each other within one process too.
func Try(path string) (*Lock, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open lock file: %w", err)
		}
		if err := lockFile(file); err != nil {
			defer file.Close()
			if errors.Is(err, errBusy) {
				return nil, &HeldError{Path: path, PID: readHolder(path)}
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// The former holder may have removed the file between our open and our
		// lock: then we hold a file that nobody else will ever find.
		if !isCurrentFile(file, path) {
			file.Close()
			continue
		}
		if err := writeHolder(file); err != nil {
			file.Close()
			return nil, err
		}
		return &Lock{file: file}, nil
	}
}

// Wait takes the lock at path like Try, and waits for it as long as ctx allows.
// When it has to wait it calls waiting once with who holds it, if waiting is
// not nil.
func Wait(ctx context.Context, path string, waiting func(*HeldError)) (*Lock, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for said := false; ; said = true {
		lock, err := Try(path)
		var held *HeldError
		if !errors.As(err, &held) {
			return lock, err
		}
		if !said && waiting != nil {
			waiting(held)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", held, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// Unlock drops the lock. It does nothing on a nil lock or the second time.
func (l *Lock) Unlock() error {
	if l == nil || l.file == nil {
		return nil
	}
	// An empty file, not a removed one: whoever has it open already must find
	// the same one as whoever opens it next.
	truncated := l.file.Truncate(0)
	closed := l.file.Close()
	l.file = nil
	return errors.Join(truncated, closed)
}

func isCurrentFile(file *os.File, path string) bool {
	ours, err := file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(ours, now)
}

func writeHolder(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return fmt.Errorf("write holder to lock file: %w", err)
	}
	if _, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("write holder to lock file: %w", err)
	}
	return nil
}

func readHolder(path string) int {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	// Who is told a holder may send it a signal, and 1, 0 and less than 0 are the
	// system's first process, the caller's group and other groups.
	if err != nil || pid <= 1 {
		return 0
	}
	return pid
}
