// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	recordSuffix = ".json"
	// reapTermTimeout is how long a leftover may take to end by itself.
	reapTermTimeout  = 3 * time.Second
	reapKillTimeout  = 5 * time.Second
	reapPollInterval = 20 * time.Millisecond
)

// Record is what <dir>/run/<name>.json says of a running program.
type Record struct {
	Name string `json:"name"`
	Path string `json:"path"`
	PID  int    `json:"pid"`
	// StartID names the process's start: a process with this id and another
	// birth is a stranger.
	StartID string `json:"birth"`
}

func recordsIn(dir string) string { return filepath.Join(dir, "run") }

// saveRecord writes the record of a program that was started; forget removes it.
func saveRecord(dir, name, path string, pid int) (forget func(), err error) {
	file := filepath.Join(recordsIn(dir), name+recordSuffix)
	forget = func() { _ = os.Remove(file) } // a record left behind is harmless
	born, err := startID(pid)
	if err != nil {
		return forget, fmt.Errorf("record %s: %w", name, err)
	}
	content, err := json.Marshal(Record{Name: name, Path: path, PID: pid, StartID: born})
	if err != nil {
		return forget, fmt.Errorf("record %s: %w", name, err)
	}
	// Written aside and renamed: half a record would be no record.
	if err := os.WriteFile(file+".new", append(content, '\n'), 0o600); err != nil {
		return forget, fmt.Errorf("record %s: %w", name, err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return forget, fmt.Errorf("record %s: %w", name, err)
	}
	return forget, nil
}

// ReapLeftovers ends the programs that dir's records name and that still run,
// removes the records, and returns those of the programs it ended. It is for
// whoever has made sure that no other process works with dir (a lock), before
// NewGroup. A process whose start differs from its record's is left alone.
func ReapLeftovers(dir string) ([]Record, error) {
	files, err := filepath.Glob(filepath.Join(recordsIn(dir), "*"+recordSuffix))
	if err != nil {
		return nil, fmt.Errorf("list process records: %w", err)
	}
	var ended []Record
	var errs []error
	for _, file := range files {
		record, err := readRecord(file)
		if err == nil {
			var running bool
			if running, err = record.terminate(); running {
				ended = append(ended, record)
			}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return ended, errors.Join(errs...)
}

func readRecord(file string) (Record, error) {
	var record Record
	content, err := os.ReadFile(file)
	if err != nil {
		return record, fmt.Errorf("read process record: %w", err)
	}
	if err := json.Unmarshal(content, &record); err != nil {
		return record, fmt.Errorf("read process record %s: %w (remove the file if no such program runs)", file, err)
	}
	return record, nil
}

// isRunning reports whether the recorded process, and no stranger, is alive.
func (r Record) isRunning() (bool, error) {
	if r.PID <= 1 || r.StartID == "" {
		return false, nil
	}
	now, err := startID(r.PID)
	if err != nil {
		return false, fmt.Errorf("look for %s, process %d: %w", r.Name, r.PID, err)
	}
	return now == r.StartID, nil
}

// terminate ends the recorded process; running says whether there was one.
func (r Record) terminate() (running bool, err error) {
	// On Linux the handle is a pidfd, so that the signal reaches the process
	// that runs looks at after it or nobody. Asking in this order leaves no
	// moment in which the id could change hands.
	handle, err := os.FindProcess(r.PID)
	if err != nil {
		return false, nil // it is gone
	}
	defer func() { _ = handle.Release() }()
	if alive, err := r.isRunning(); err != nil || !alive {
		return false, err
	}
	for _, step := range []struct {
		signal syscall.Signal
		within time.Duration
	}{{syscall.SIGTERM, reapTermTimeout}, {syscall.SIGKILL, reapKillTimeout}} {
		// An error means that it is gone, which the wait finds out.
		_ = handle.Signal(step.signal)
		if gone, err := r.waitForExit(step.within); gone || err != nil {
			return true, err
		}
	}
	return true, fmt.Errorf("%s, process %d of an earlier run (%s), does not end: end it by hand and try again",
		r.Name, r.PID, r.Path)
}

func (r Record) waitForExit(within time.Duration) (bool, error) {
	tick := time.NewTicker(reapPollInterval)
	defer tick.Stop()
	for deadline := time.Now().Add(within); ; <-tick.C {
		alive, err := r.isRunning()
		if err != nil || !alive {
			return err == nil, err
		}
		if time.Now().After(deadline) {
			return false, nil
		}
	}
}
