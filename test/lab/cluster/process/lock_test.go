// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func acquireLock(t *testing.T, path string) *Lock {
	t.Helper()
	l, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Unlock() })
	return l
}

func TestTryLockReportsHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := acquireLock(t, path)
	_, err := TryLock(path)
	var held *LockHeldError
	if !errors.As(err, &held) || held.PID != os.Getpid() || held.Path != path {
		t.Fatalf("got %v, want a *LockHeldError of this process", err)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := first.Unlock(); err != nil {
		t.Errorf("a second Unlock: %v", err)
	}
	acquireLock(t, path)
}

func TestTryLockInvalidPath(t *testing.T) {
	if _, err := TryLock(filepath.Join(t.TempDir(), "missing", "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestLockOfRemovedFileIsInvalid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	acquireLock(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	acquireLock(t, path) // a new file, not locked
}

func TestWaitForLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := acquireLock(t, path)
	waiting := make(chan int, 10)
	got := make(chan error, 1)
	go func() {
		l, err := WaitForLock(context.Background(), path, func(held *LockHeldError) { waiting <- held.PID })
		got <- err
		l.Unlock()
	}()
	if pid := <-waiting; pid != os.Getpid() {
		t.Errorf("waits for process %d", pid)
	}
	select {
	case err := <-got:
		t.Fatalf("Wait returned %v while the lock was held", err)
	default:
	}
	first.Unlock()
	if err := <-got; err != nil {
		t.Error(err)
	}
	if len(waiting) != 0 {
		t.Error("the wait was reported more than once")
	}
}

func TestWaitForLockCanceled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	acquireLock(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := WaitForLock(ctx, path, nil)
	var held *LockHeldError
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &held) {
		t.Errorf("got %v", err)
	}
}

// The process that a lock names may get a signal, so its PID must be valid.
func TestReadLockHolderRejectsInvalidPIDs(t *testing.T) {
	for content, want := range map[string]int{
		"4711\n": 4711, "2": 2, " 17 \n": 17,
		"1\n": 0, "0": 0, "-1": 0, "-4711\n": 0, "": 0, "a": 0, "17 18": 0, "99999999999999999999": 0,
	} {
		path := filepath.Join(t.TempDir(), "lock")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readLockHolder(path); got != want {
			t.Errorf("%q: %d, want %d", content, got, want)
		}
	}
}

// holderVariable makes the test binary acquireLock the lock that it names, print "held", and
// wait for its end.
const holderVariable = "SLUICE_TEST_HOLD"

// holdLock acquires the lock at path, prints "held", and waits for the end of stdin.
func holdLock(path string) {
	held, err := TryLock(path)
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString("held")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends, or ends this
	runtime.KeepAlive(held)              // collected, its file would be closed
}

func TestLockReleasedWhenProcessEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderVariable+"="+path)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer holder.Wait()
	defer holder.Process.Kill()
	line := make([]byte, 4)
	if _, err := out.Read(line); err != nil || string(line) != "held" {
		t.Fatalf("the holder printed %q, %v", line, err)
	}
	_, err = TryLock(path)
	var held *LockHeldError
	if !errors.As(err, &held) || held.PID != holder.Process.Pid || !strings.Contains(err.Error(), "locked by process") {
		t.Fatalf("got %v, want that process %d holds it", err, holder.Process.Pid)
	}
	holder.Process.Kill()
	holder.Wait()
	acquireLock(t, path)
}
