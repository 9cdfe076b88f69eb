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
	// reminderInterval is how often a log, where nothing can be redrawn, is told
	// that a step goes on.
	reminderInterval = 30 * time.Second
)

// progressWriter says what goes on: on a terminal in a line that is redrawn with the
// time gone by, elsewhere in lines.
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

// startStep says that a step begins, and now and then that it goes on, until the
// function it returns is called with the step's outcome.
func (s *progressWriter) startStep(format string, args ...any) (done func(error)) {
	what, begin := fmt.Sprintf(format, args...), time.Now()
	stop, stopped := make(chan struct{}), make(chan struct{})
	if s.terminal {
		fmt.Fprint(s.out, what)
	} else {
		s.printf("%s", what)
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
				s.printState(what, begin, "so far")
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
		s.printState(what, begin, outcome)
		if s.terminal {
			fmt.Fprintln(s.out)
		}
	}
}

func (s *progressWriter) printState(what string, begin time.Time, state string) {
	elapsed := time.Since(begin).Round(time.Second)
	if s.terminal {
		fmt.Fprintf(s.out, "\r\x1b[K%s: %s, %s", what, elapsed, state)
		return
	}
	s.printf("%s: %s, %s", what, elapsed, state)
}
