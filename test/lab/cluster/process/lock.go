// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// lockPollInterval is the interval at which WaitForLock tries again.
const lockPollInterval = 100 * time.Millisecond

// LockHeldError reports that another process holds the lock.
type LockHeldError struct {
	// Path of the lock file.
	Path string
	// PID of the holder, 0 where it cannot be read.
	PID int
}

// Error names the file and, where known, the process.
func (e *LockHeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is locked by another process", e.Path)
	}
	return fmt.Sprintf("%s is locked by process %d", e.Path, e.PID)
}

// Lock is a held lock. Unlock drops it, and so does the end of the process: the lock is
// github.com/gofrs/flock's, which the kernel drops. The file has the ID of the process, for
// the message to the next one. It is never removed, since the next process needs the same
// file.
type Lock struct{ file *flock.Flock }

// TryLock acquires the lock at path, and creates the file (0600) where it does not
// exist. If the lock is held, it returns a *LockHeldError at once. Two locks on one
// path exclude each other within one process too.
func TryLock(path string) (*Lock, error) {
	for {
		file := flock.New(path)
		locked, err := file.TryLock()
		switch {
		case err != nil:
			return nil, fmt.Errorf("lock %s: %w", path, err)
		case !locked:
			return nil, &LockHeldError{Path: path, PID: readLockHolder(path)}
		}
		// The former holder may have removed the file between open and lock. A lock
		// on that file would exclude no other process.
		if !isCurrentFile(file, path) {
			_ = file.Unlock()
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("write holder to lock file: %w", err), file.Unlock())
		}
		return &Lock{file: file}, nil
	}
}

// WaitForLock acquires the lock at path like TryLock, and waits for it as long as ctx allows.
// It calls waiting once with the holder, if it has to wait and waiting is not nil.
func WaitForLock(ctx context.Context, path string, waiting func(*LockHeldError)) (*Lock, error) {
	tick := time.NewTicker(lockPollInterval)
	defer tick.Stop()
	for reported := false; ; reported = true {
		lock, err := TryLock(path)
		var held *LockHeldError
		if !errors.As(err, &held) {
			return lock, err
		}
		if !reported && waiting != nil {
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
	// The file is emptied and not removed: a process that has opened it must find
	// the same file as one that opens it next.
	var truncated error
	if isCurrentFile(l.file, l.file.Path()) {
		truncated = os.Truncate(l.file.Path(), 0)
	}
	unlocked := l.file.Unlock()
	l.file = nil
	return errors.Join(truncated, unlocked)
}

func isCurrentFile(file *flock.Flock, path string) bool {
	locked, err := file.Stat()
	if err != nil {
		return false
	}
	current, err := os.Stat(path)
	return err == nil && os.SameFile(locked, current)
}

func readLockHolder(path string) int {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	// Callers may signal the process: 1, 0 and negative ids are the system's first
	// process, the caller's group and other groups.
	if err != nil || pid <= 1 {
		return 0
	}
	return pid
}
