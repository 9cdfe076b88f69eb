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
	redrawEvery = time.Second
	// remindEvery is how often a log, where nothing can be redrawn, is told
	// that a step goes on.
	remindEvery = 30 * time.Second
)

// speaker says what goes on: on a terminal in a line that is redrawn with the
// time gone by, elsewhere in lines.
type speaker struct {
	out      io.Writer
	terminal bool
	every    time.Duration
}

func newSpeaker(out io.Writer) *speaker {
	if out == nil {
		out = io.Discard
	}
	s := &speaker{out: out, every: remindEvery}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		s.terminal, s.every = true, redrawEvery
	}
	return s
}

func (s *speaker) line(format string, args ...any) {
	fmt.Fprintf(s.out, format+"\n", args...)
}

// step says that a step begins, and now and then that it goes on, until the
// function it returns is called with the step's outcome.
func (s *speaker) step(format string, args ...any) (done func(error)) {
	what, begin := fmt.Sprintf(format, args...), time.Now()
	stop, stopped := make(chan struct{}), make(chan struct{})
	if s.terminal {
		fmt.Fprint(s.out, what)
	} else {
		s.line("%s", what)
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
				s.show(what, begin, "so far")
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
		s.show(what, begin, outcome)
		if s.terminal {
			fmt.Fprintln(s.out)
		}
	}
}

func (s *speaker) show(what string, begin time.Time, state string) {
	elapsed := time.Since(begin).Round(time.Second)
	if s.terminal {
		fmt.Fprintf(s.out, "\r\x1b[K%s: %s, %s", what, elapsed, state)
		return
	}
	s.line("%s: %s, %s", what, elapsed, state)
}
