// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	redrawInterval = time.Second
	// reminderInterval is the period of "so far" lines in a log, which cannot be redrawn.
	reminderInterval = 30 * time.Second
	// estimateFrom is the share of the work from which on the remaining time is estimated.
	estimateFrom = 0.03
)

// task is a build that reports its progress until finish: on a terminal as one line that is redrawn with the percentage and the remaining
// time, elsewhere as separate lines.
type task struct {
	out      io.Writer
	terminal bool
	started  time.Time
	stop     chan struct{}
	stopped  chan struct{}

	mu          sync.Mutex
	total, done int
	expected    map[string]bool // packages to compile; false once compiled

	compiling sync.Mutex
}

// startTask begins a task without units of work, which grow and expect add. The caller must call finish. out may be nil.
func startTask(out io.Writer) *task {
	file, _ := out.(*os.File)
	if file != nil && term.IsTerminal(int(file.Fd())) {
		return newTask(out, true, redrawInterval)
	}
	return newTask(out, false, reminderInterval)
}

func newTask(out io.Writer, terminal bool, every time.Duration) *task {
	if out == nil {
		out = io.Discard
	}
	t := &task{
		out: out, terminal: terminal, started: time.Now(),
		stop: make(chan struct{}), stopped: make(chan struct{}), expected: map[string]bool{},
	}
	go func() {
		defer close(t.stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-t.stop:
				return
			case <-tick.C:
				t.mu.Lock()
				t.printStateLocked()
				t.mu.Unlock()
			}
		}
	}()
	return t
}

// grow adds units of work.
func (t *task) grow(units int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += units
}

// expect adds a unit of work for each package that no other build of the task compiles as well.
func (t *task) expect(packages []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range packages {
		if _, found := t.expected[name]; !found {
			t.expected[name] = true
			t.total++
		}
	}
}

// compiled counts those of the packages as done that are expected.
func (t *task) compiled(packages ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range packages {
		if t.expected[name] {
			t.expected[name] = false
			t.done++
		}
	}
}

// advance counts units of work as done.
func (t *task) advance(units int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = min(t.done+units, t.total)
}

// note prints a line about a part of the task.
func (t *task) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clearLocked()
	fmt.Fprintf(t.out, format+"\n", args...)
}

// finish ends the task's reports.
func (t *task) finish() {
	close(t.stop)
	<-t.stopped
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clearLocked()
}

// clearLocked removes the line that is redrawn.
func (t *task) clearLocked() {
	if t.terminal {
		fmt.Fprint(t.out, "\r\x1b[K")
	}
}

func (t *task) printStateLocked() {
	line := t.describe(time.Since(t.started))
	if t.terminal {
		fmt.Fprintf(t.out, "\r\x1b[K%s", line)
		return
	}
	fmt.Fprintln(t.out, line)
}

// describe returns the state after the elapsed time, such as "building: 43 %, 1m10s so far,
// about 1m30s left".
func (t *task) describe(elapsed time.Duration) string {
	share := 0.0
	if t.total > 0 {
		share = float64(t.done) / float64(t.total)
	}
	line := fmt.Sprintf("building: %d %%, %s so far", int(100*share), elapsed.Round(time.Second))
	if share < estimateFrom || share >= 1 {
		return line
	}
	left := time.Duration(float64(elapsed) * (1 - share) / share)
	return fmt.Sprintf("%s, about %s left", line, left.Round(10*time.Second))
}
