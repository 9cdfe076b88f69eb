// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policytime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// FileName is the name of the clock file of an embedded cluster.
const FileName = "clock.json"

// maxFileSize in bytes is far above the size of [MaxSegments] segments.
const maxFileSize = 4 << 20

// File is the policy time that the processes of an embedded cluster share through a file. Without
// the file it is real time. Every read checks whether the file has changed, so all processes
// observe a step immediately. If the file cannot be read or is invalid, the last valid timeline
// stays in force (see [File.Err]).
type File struct {
	path string
	// report is called with each new reason why the file cannot be used.
	report func(error)

	mu       sync.Mutex
	version  fileVersion
	timeline Timeline
	err      error
	// lastNow is the last result of Now.
	lastNow time.Time
}

var _ Clock = (*File)(nil)

// fileVersion identifies a version of the file. Each version is a new file that is renamed into
// place.
type fileVersion struct {
	inode    uint64
	modified time.Time
	size     int64
}

// OpenFile opens the clock file at path, which need not exist. It fails if the file exists and is
// invalid. If the file becomes invalid later, report is called once for each reason; report may
// be nil.
func OpenFile(path string, report func(error)) (*File, error) {
	f := &File{path: path}
	defer func() { f.report = report }() // the first error is returned, not reported
	f.current()
	if f.err != nil {
		return nil, f.err
	}
	return f, nil
}

// Now implements [Clock]. It never returns an earlier time than before, even if the scale was
// lowered in between.
func (f *File) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refreshLocked()
	if now := f.timeline.At(time.Now()); now.After(f.lastNow) {
		f.lastNow = now
	}
	return f.lastNow
}

// FromReal implements [Clock].
func (f *File) FromReal(t time.Time) time.Time { return f.current().At(t) }

// RealUntil implements [Clock].
func (f *File) RealUntil(t time.Time) time.Duration { return f.current().RealUntil(t, time.Now()) }

// Timeline returns the current mapping.
func (f *File) Timeline() Timeline { return f.current() }

// Err returns why the file could not be used at the last read, or nil. The last valid timeline
// stays in force.
func (f *File) Err() error {
	f.current()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Advance steps policy time forward by d for all processes that read the file.
func (f *File) Advance(d time.Duration) error {
	return f.update(func(l Timeline) (Timeline, error) { return l.WithStep(d, time.Now()) })
}

// AdvanceTo steps policy time forward to t for all processes that read the file. It does nothing
// if t has passed, and fails if t is more than [MaxStep] ahead.
func (f *File) AdvanceTo(t time.Time) error {
	return f.update(func(l Timeline) (Timeline, error) {
		now := time.Now()
		step := t.Sub(l.At(now))
		if step <= 0 {
			return l, nil
		}
		return l.WithStep(step, now)
	})
}

// SetScale makes policy time run scale times as fast as real time from now on.
func (f *File) SetScale(scale float64) error {
	return f.update(func(l Timeline) (Timeline, error) { return l.WithScale(scale, time.Now()) })
}

// Snapshot returns a clock that does not read its file again, for many conversions at one moment.
func Snapshot(clock Clock) Clock {
	if f, isFile := clock.(*File); isFile {
		return snapshot{f.current()}
	}
	return clock
}

type snapshot struct{ timeline Timeline }

// Now implements [Clock].
func (s snapshot) Now() time.Time { return s.timeline.At(time.Now()) }

// FromReal implements [Clock].
func (s snapshot) FromReal(t time.Time) time.Time { return s.timeline.At(t) }

// RealUntil implements [Clock].
func (s snapshot) RealUntil(t time.Time) time.Duration { return s.timeline.RealUntil(t, time.Now()) }

func (f *File) current() Timeline {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refreshLocked()
	return f.timeline
}

// refreshLocked reads the file if it has changed. The caller holds the lock.
func (f *File) refreshLocked() {
	before := f.err
	defer func() {
		if f.err != nil && f.report != nil && (before == nil || before.Error() != f.err.Error()) {
			f.report(f.err)
		}
	}()
	now, err := statFile(f.path)
	switch {
	case err != nil:
		f.err = err
	case now == f.version:
	case now == fileVersion{}:
		// The file was deleted with its cluster. Policy time must not fall back to real time
		// in a process that still runs.
		f.err = fmt.Errorf("policy time: %s is missing; keeping the last one read", f.path)
	default:
		f.version = now
		f.setTimelineLocked(readTimeline(f.path))
	}
}

// setTimelineLocked puts a timeline in force unless it would set policy time back for this
// process. A timeline that continues the current one cannot do so, even with a lower scale.
func (f *File) setTimelineLocked(l Timeline, err error) {
	if err == nil && !l.hasPrefix(f.timeline) {
		instant := time.Now()
		if is, was := l.At(instant), f.timeline.At(instant); is.Before(was) {
			err = fmt.Errorf("%w: %s would set policy time back by %v; keeping the last one read", ErrInvalid, f.path, was.Sub(is))
		}
	}
	if f.err = err; err == nil {
		f.timeline = l
	}
}

// update reads, changes and replaces the file under a lock that all processes use, so that no
// step is lost.
func (f *File) update(change func(Timeline) (Timeline, error)) error {
	lock, err := os.OpenFile(f.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("policy time: %w", err)
	}
	defer lock.Close() // also releases the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("policy time: locking %s: %w", lock.Name(), err)
	}
	before, err := readTimeline(f.path)
	if err != nil {
		return err
	}
	after, err := change(before)
	if err != nil || len(after.Segments) == len(before.Segments) {
		return err // every change adds one segment
	}
	return writeTimeline(f.path, after)
}

func statFile(path string) (fileVersion, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fileVersion{}, nil
	}
	if err != nil {
		return fileVersion{}, fmt.Errorf("policy time: %w", err)
	}
	return fileVersion{inode: inodeNumber(info), modified: info.ModTime(), size: info.Size()}, nil
}

func readTimeline(path string) (Timeline, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Timeline{}, nil
	}
	if err != nil {
		return Timeline{}, fmt.Errorf("policy time: %w", err)
	}
	l, err := ParseTimeline(raw)
	if err != nil {
		return Timeline{}, fmt.Errorf("policy time: %s: %w", path, err)
	}
	return l, nil
}

// ParseTimeline parses the JSON form of a timeline. Unknown fields, trailing data and contents
// that [Timeline.Validate] rejects are errors that wrap [ErrInvalid].
func ParseTimeline(raw []byte) (Timeline, error) {
	if len(raw) > maxFileSize {
		return Timeline{}, fmt.Errorf("%w: %d bytes; at most %d are allowed", ErrInvalid, len(raw), maxFileSize)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	var form struct {
		Segments *[]Segment `json:"segments"`
	}
	if err := decoder.Decode(&form); err != nil {
		return Timeline{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Timeline{}, fmt.Errorf("%w: something follows the object", ErrInvalid)
	}
	if form.Segments == nil {
		return Timeline{}, fmt.Errorf("%w: segments: required", ErrInvalid)
	}
	l := Timeline{Segments: *form.Segments}
	return l, l.Validate()
}

// writeTimeline replaces the file atomically: a reader sees the old or the new version, also
// after a crash.
func writeTimeline(path string, l Timeline) (err error) {
	raw, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("policy time: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("policy time: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(append(raw, '\n'))
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("policy time: writing %s: %w", tmp.Name(), err)
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("policy time: %w", err)
	}
	return nil
}

// inodeNumber returns the file's inode, or zero if the file system has none.
func inodeNumber(info fs.FileInfo) uint64 {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return sys.Ino
	}
	return 0
}
