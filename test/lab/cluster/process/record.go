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
	// reapTermTimeout bounds the time between SIGTERM and SIGKILL.
	reapTermTimeout  = 3 * time.Second
	reapKillTimeout  = time.Minute
	reapPollInterval = 20 * time.Millisecond
)

// Record is the content of <dir>/run/<name>.json about a running program.
type Record struct {
	Name string `json:"name"`
	Path string `json:"path"`
	PID  int    `json:"pid"`
	// StartID identifies the start of the process. A process with the same ID and another
	// start is not the recorded one.
	StartID string `json:"birth"`
}

func recordsIn(dir string) string { return filepath.Join(dir, "run") }

// saveRecord writes the record of a started program; the returned function removes it.
func saveRecord(dir, name, path string, pid int) (removeRecord func(), err error) {
	file := filepath.Join(recordsIn(dir), name+recordSuffix)
	removeRecord = func() { _ = os.Remove(file) } // a remaining record is harmless
	started, err := startID(pid)
	if err != nil {
		return removeRecord, fmt.Errorf("record %s: %w", name, err)
	}
	content, err := json.Marshal(Record{Name: name, Path: path, PID: pid, StartID: started})
	if err != nil {
		return removeRecord, fmt.Errorf("record %s: %w", name, err)
	}
	// The rename makes the write atomic.
	if err := os.WriteFile(file+".new", append(content, '\n'), 0o600); err != nil {
		return removeRecord, fmt.Errorf("record %s: %w", name, err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return removeRecord, fmt.Errorf("record %s: %w", name, err)
	}
	return removeRecord, nil
}

// ReapLeftovers ends the running programs of dir's records, removes the records, and
// returns those of the programs that it ended. The caller must hold a lock on dir and call
// it before NewGroup. ReapLeftovers ignores a process whose start differs from its record.
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

// isRunning reports whether the recorded process, with the recorded start, is alive.
func (r Record) isRunning() (bool, error) {
	if r.PID <= 1 || r.StartID == "" {
		return false, nil
	}
	now, err := startID(r.PID)
	if err != nil {
		return false, fmt.Errorf("find %s, process %d: %w", r.Name, r.PID, err)
	}
	return now == r.StartID, nil
}

// terminate ends the recorded process; running reports whether it was alive.
func (r Record) terminate() (running bool, err error) {
	// On Linux the handle is a pidfd, which never refers to another process. It is opened
	// before isRunning, so that the ID cannot be reused in between.
	handle, err := os.FindProcess(r.PID)
	if err != nil {
		return false, nil // the process has ended
	}
	defer func() { _ = handle.Release() }()
	if alive, err := r.isRunning(); err != nil || !alive {
		return false, err
	}
	for _, step := range []struct {
		signal syscall.Signal
		within time.Duration
	}{{syscall.SIGTERM, reapTermTimeout}, {syscall.SIGKILL, reapKillTimeout}} {
		// An error means that the process has ended, which waitForExit detects.
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
