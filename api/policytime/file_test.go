// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policytime_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice.dev/api/policytime"
)

const month = 30 * 24 * time.Hour

func openFile(t *testing.T, path string) *policytime.File {
	t.Helper()
	f, err := policytime.OpenFile(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// offsetFromReal is the lead of policy time over real time, in whole hours.
func offsetFromReal(c policytime.Clock) time.Duration {
	return time.Until(c.Now()).Round(time.Hour)
}

func TestFileIsSharedAndPersistent(t *testing.T) {
	path := filepath.Join(t.TempDir(), policytime.FileName)
	one, other := openFile(t, path), openFile(t, path)
	if got := offsetFromReal(one); got != 0 {
		t.Fatalf("without a file policy time is %v ahead of real time", got)
	}
	if err := one.Advance(month); err != nil {
		t.Fatal(err)
	}
	if got := offsetFromReal(other); got != month {
		t.Errorf("the other process is %v ahead, want %v", got, month)
	}
	if got := offsetFromReal(openFile(t, path)); got != month {
		t.Errorf("after a restart it is %v ahead, want %v", got, month)
	}
	created := time.Now().Add(-time.Hour)
	if got := other.FromReal(created); !got.Equal(created) {
		t.Errorf("FromReal of an instant before the step = %v, want %v", got, created)
	}
}

func TestFileKeepsStepsOfConcurrentWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), policytime.FileName)
	var writers sync.WaitGroup
	for range 20 {
		writers.Go(func() {
			f, err := policytime.OpenFile(path, nil)
			if err == nil {
				err = f.Advance(time.Hour)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if got := offsetFromReal(openFile(t, path)); got != 20*time.Hour {
		t.Errorf("20 steps of an hour made %v", got)
	}
}

func TestFileScaleShortensSleep(t *testing.T) {
	f := openFile(t, filepath.Join(t.TempDir(), policytime.FileName))
	if err := f.SetScale(3600); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	sleep := f.RealUntil(f.Now().Add(48 * time.Hour))
	passed := time.Since(before)
	if sleep < 48*time.Second-passed-time.Millisecond || sleep > 48*time.Second+time.Millisecond {
		t.Errorf("48 h at 3600 take %v after %v, want 48 s together", sleep, passed)
	}
}

// A process that read no file while policy time ran fast adopts the slower scale that followed.
func TestFileAcceptsSlowerScale(t *testing.T) {
	path := filepath.Join(t.TempDir(), policytime.FileName)
	one, other := openFile(t, path), openFile(t, path)
	change := func(changes ...error) {
		t.Helper()
		if err := errors.Join(changes...); err != nil {
			t.Fatal(err)
		}
	}
	change(one.SetScale(policytime.MaxScale))
	before := other.Now()
	change(one.SetScale(60), one.Advance(time.Hour), one.SetScale(1))
	last := before
	for range 1000 {
		now := other.Now()
		if now.Before(last) {
			t.Fatalf("policy time went back by %v", last.Sub(now))
		}
		last = now
	}
	if err := other.Err(); err != nil {
		t.Fatal(err)
	}
	if got := other.Timeline().Scale(time.Now()); got != 1 {
		t.Errorf("the other process runs at scale %v, want 1", got)
	}
	if last.Sub(before) < time.Hour {
		t.Errorf("after the step it is %v later, want an hour at least", last.Sub(before))
	}
}

// A lost step is rejected for every change of the scale in between.
func TestFileRejectsLostStep(t *testing.T) {
	path := filepath.Join(t.TempDir(), policytime.FileName)
	f := openFile(t, path)
	if err := f.SetScale(1); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Advance(month); err != nil {
		t.Fatal(err)
	}
	f.Now()
	overwriteFile(string(kept))(t, path)
	if err := openFile(t, path).SetScale(2); err != nil {
		t.Fatal(err)
	}
	if got := offsetFromReal(f); got != month {
		t.Errorf("policy time is %v ahead, want %v", got, month)
	}
	if err := f.Err(); !errors.Is(err, policytime.ErrInvalid) || !strings.Contains(err.Error(), "set policy time back") {
		t.Errorf("Err() = %v", err)
	}
}

func TestFileAdvanceTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), policytime.FileName)
	f := openFile(t, path)
	goal := time.Now().Add(month)
	// Of many who step to one instant, one does.
	var writers sync.WaitGroup
	for range 10 {
		writers.Go(func() {
			one, err := policytime.OpenFile(path, nil)
			if err == nil {
				err = one.AdvanceTo(goal)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if late := f.Now().Sub(goal); late < 0 || late > time.Minute {
		t.Errorf("policy time is %v past the instant, want it just there", late)
	}
	if n := len(f.Timeline().Segments); n != 1 {
		t.Errorf("%d changes, want 1", n)
	}
	if err := f.AdvanceTo(goal.Add(-time.Hour)); err != nil {
		t.Errorf("to an instant that has passed: %v", err)
	}
	if err := f.AdvanceTo(goal.Add(2 * policytime.MaxStep)); !errors.Is(err, policytime.ErrInvalid) {
		t.Errorf("beyond the longest step: %v, want ErrInvalid", err)
	}
}

func TestDamagedFileKeepsLastValidTimeline(t *testing.T) {
	tests := map[string]struct {
		damage func(t *testing.T, path string)
		want   string
	}{
		"torn":             {overwriteFile(`{"segments":[{"re`), "unexpected EOF"},
		"unknown field":    {overwriteFile(`{"segments":[],"pace":2}`), `unknown field "pace"`},
		"a bracket more":   {overwriteFile(`{"segments":[]}}`), "something follows"},
		"null":             {overwriteFile(`null`), "segments: required"},
		"nothing in it":    {overwriteFile(`{}`), "segments: required"},
		"real time again":  {overwriteFile(`{"segments":[]}`), "set policy time back"},
		"trailing":         {overwriteFile(`{"segments":[]} {}`), "something follows"},
		"backwards":        {overwriteFile(`{"segments":[{"real":"2026-01-02T00:00:00Z","policy":"2026-01-01T00:00:00Z","scale":1}]}`), "segments[0].policy"},
		"absurd scale":     {overwriteFile(`{"segments":[{"real":"2026-01-01T00:00:00Z","policy":"2026-01-01T00:00:00Z","scale":1e300}]}`), "want 1 to 3600"},
		"a folder instead": {func(t *testing.T, path string) { replaceWithDirectory(t, path) }, "is a directory"},
		"gone":             {func(t *testing.T, path string) { removeFile(t, path) }, "is missing"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), policytime.FileName)
			var reported []error
			f, err := policytime.OpenFile(path, func(err error) { reported = append(reported, err) })
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Advance(month); err != nil {
				t.Fatal(err)
			}
			f.Now()
			tc.damage(t, path)
			if got := offsetFromReal(f); got != month {
				t.Errorf("policy time is %v ahead, want the %v read before the damage", got, month)
			}
			if err := f.Err(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Err() = %v, want it to say %q", err, tc.want)
			}
			if f.Now(); len(reported) != 1 {
				t.Errorf("reported %d times, want once: %v", len(reported), reported)
			}
		})
	}
}

func TestOpenFileRejectsDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), policytime.FileName)
	overwriteFile(`nonsense`)(t, path)
	if _, err := policytime.OpenFile(path, nil); !errors.Is(err, policytime.ErrInvalid) || !strings.Contains(err.Error(), path) {
		t.Errorf("err = %v, want ErrInvalid naming %s", err, path)
	}
}

func TestSystemClockIsRealTime(t *testing.T) {
	c := policytime.System()
	if got := offsetFromReal(c); got != 0 {
		t.Errorf("the system clock is %v ahead", got)
	}
	if at := time.Now().Add(-time.Hour); !c.FromReal(at).Equal(at) || c.RealUntil(at) != 0 {
		t.Error("an instant that has passed is neither moved nor waited for")
	}
}

func overwriteFile(with string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(with), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func removeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func replaceWithDirectory(t *testing.T, path string) {
	t.Helper()
	removeFile(t, path)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

// A snapshot does not read the file, so that 100,000 conversions are no system calls.
func TestSnapshotDoesNotReadTheFile(t *testing.T) {
	f := openFile(t, filepath.Join(t.TempDir(), policytime.FileName))
	before := policytime.Snapshot(f)
	if err := f.Advance(month); err != nil {
		t.Fatal(err)
	}
	if got := offsetFromReal(before); got != 0 {
		t.Errorf("an earlier snapshot is %v ahead of real time", got)
	}
	if got := offsetFromReal(policytime.Snapshot(f)); got != month {
		t.Errorf("a new snapshot is %v ahead, want %v", got, month)
	}
	if allocated := testing.AllocsPerRun(100, func() { before.FromReal(time.Now()) }); allocated > 0 {
		t.Errorf("a conversion allocates %v times", allocated)
	}
}
