// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filelock

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

func acquire(t *testing.T, path string) *Lock {
	t.Helper()
	l, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Unlock() })
	return l
}

func TestTryReportsHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := acquire(t, path)
	_, err := Try(path)
	var held *HeldError
	if !errors.As(err, &held) || held.PID != os.Getpid() || held.Path != path {
		t.Fatalf("got %v, want a *HeldError of this process", err)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := first.Unlock(); err != nil {
		t.Errorf("a second Unlock: %v", err)
	}
	acquire(t, path)
}

func TestTryInvalidPath(t *testing.T) {
	if _, err := Try(filepath.Join(t.TempDir(), "missing", "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestLockOfRemovedFileIsInvalid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	acquire(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	acquire(t, path) // a new file, not locked
}

func TestWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := acquire(t, path)
	waiting := make(chan int, 10)
	got := make(chan error, 1)
	go func() {
		l, err := Wait(context.Background(), path, func(held *HeldError) { waiting <- held.PID })
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

func TestWaitCanceled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	acquire(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Wait(ctx, path, nil)
	var held *HeldError
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &held) {
		t.Errorf("got %v", err)
	}
}

// The process that a lock names may get a signal, so its PID must be valid.
func TestReadHolderRejectsInvalidPIDs(t *testing.T) {
	for content, want := range map[string]int{
		"4711\n": 4711, "2": 2, " 17 \n": 17,
		"1\n": 0, "0": 0, "-1": 0, "-4711\n": 0, "": 0, "a": 0, "17 18": 0, "99999999999999999999": 0,
	} {
		path := filepath.Join(t.TempDir(), "lock")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readHolder(path); got != want {
			t.Errorf("%q: %d, want %d", content, got, want)
		}
	}
}

// holderVariable makes the test binary acquire the lock that it names, print "held", and
// wait for its end.
const holderVariable = "SLUICE_TEST_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(holderVariable); path != "" {
		held, err := Try(path)
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString("held")
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends, or ends this
		runtime.KeepAlive(held)              // collected, its file would be closed
		return
	}
	os.Exit(m.Run())
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
	_, err = Try(path)
	var held *HeldError
	if !errors.As(err, &held) || held.PID != holder.Process.Pid || !strings.Contains(err.Error(), "locked by process") {
		t.Fatalf("got %v, want that process %d holds it", err, holder.Process.Pid)
	}
	holder.Process.Kill()
	holder.Wait()
	acquire(t, path)
}
