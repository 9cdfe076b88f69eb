// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestProgressRemindersWithoutTerminal(t *testing.T) {
	var output syncBuffer
	task := newTask(&output, false, 10*time.Millisecond)
	task.grow(200)
	task.advance(86)
	for strings.Count(output.String(), "building: 43 %, 0s so far") < 2 {
		time.Sleep(time.Millisecond)
	}
	task.note("built etcd")
	task.finish()
	if lines := strings.Split(output.String(), "\n"); !slices.Contains(lines, "built etcd") {
		t.Errorf("progress:\n%s", output.String())
	}
}

func TestRemainingTime(t *testing.T) {
	for _, tc := range []struct {
		total, done int
		elapsed     time.Duration
		want        string
	}{
		{200, 0, 31 * time.Second, "building: 0 %, 31s so far"},
		{200, 50, time.Minute, "building: 25 %, 1m0s so far, about 3m0s left"},
		{200, 150, 91 * time.Second, "building: 75 %, 1m31s so far, about 30s left"},
		{200, 200, time.Minute, "building: 100 %, 1m0s so far"},
		{0, 0, time.Second, "building: 0 %, 1s so far"},
	} {
		task := &task{total: tc.total}
		task.advance(tc.done)
		if got := task.describe(tc.elapsed); got != tc.want {
			t.Errorf("%d of %d: %q, want %q", tc.done, tc.total, got, tc.want)
		}
	}
}

// The percentage counts the packages that are compiled, not those in Go's build cache.
func TestProgressCountsStalePackages(t *testing.T) {
	pins := newFakePins(t, hello)
	t.Setenv("GOCACHE", t.TempDir())
	list := programsPinnedIn("")
	list = slices.DeleteFunc(list, func(p program) bool { return p.name != "kwok" })
	stale, err := staleOf(t.Context(), pins, list)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(stale, "sigs.k8s.io/kwok/pkg/consts") || !slices.Contains(stale, "runtime") {
		t.Fatalf("stale packages: %v", stale)
	}
	task := startTask(nil)
	task.expect(stale)
	task.expect(stale[1:]) // of another program, compiled once for both
	defer task.finish()
	compile(t.Context(), pins, list, stale, task)
	if task.done != len(stale) || task.total != len(stale) {
		t.Errorf("%d of %d packages are counted, %d are stale", task.done, task.total, len(stale))
	}
	if stale, err = staleOf(t.Context(), pins, list); err != nil || slices.Contains(stale, "runtime") {
		t.Errorf("after the build: %v, %v", stale, err)
	}
}
