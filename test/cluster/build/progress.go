// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

const (
	redrawInterval = time.Second
	// reminderInterval is the period of "so far" lines in a log, which cannot be redrawn.
	reminderInterval = 30 * time.Second
)

// progressWriter reports progress: on a terminal as one line that is redrawn with the
// elapsed time, elsewhere as separate lines.
type progressWriter struct {
	out      io.Writer
	terminal bool
	every    time.Duration
}

func newProgressWriter(out io.Writer) *progressWriter {
	if out == nil {
		out = io.Discard
	}
	s := &progressWriter{out: out, every: reminderInterval}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		s.terminal, s.every = true, redrawInterval
	}
	return s
}

func (s *progressWriter) printf(format string, args ...any) {
	fmt.Fprintf(s.out, format+"\n", args...)
}

// startStep reports the start of a step, and periodically that it continues, until the
// caller calls done with the step's outcome.
func (s *progressWriter) startStep(format string, args ...any) (done func(error)) {
	step, started := fmt.Sprintf(format, args...), time.Now()
	stop, stopped := make(chan struct{}), make(chan struct{})
	if s.terminal {
		fmt.Fprint(s.out, step)
	} else {
		s.printf("%s", step)
	}
	go func() {
		defer close(stopped)
		tick := time.NewTicker(s.every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				s.printState(step, started, "so far")
			}
		}
	}()
	return func(err error) {
		close(stop)
		<-stopped
		outcome := "done"
		if err != nil {
			outcome = "failed"
		}
		s.printState(step, started, outcome)
		if s.terminal {
			fmt.Fprintln(s.out)
		}
	}
}

func (s *progressWriter) printState(step string, started time.Time, state string) {
	elapsed := time.Since(started).Round(time.Second)
	if s.terminal {
		fmt.Fprintf(s.out, "\r\x1b[K%s: %s, %s", step, elapsed, state)
		return
	}
	s.printf("%s: %s, %s", step, elapsed, state)
}
