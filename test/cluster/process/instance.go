// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

// instance is one run of a component.
type instance interface {
	// pid is 0 where no process belongs to it.
	pid() int
	since() time.Time
	// terminate asks it to end, kill ends it; both return at once.
	terminate()
	kill()
	exited() <-chan struct{}
	// exit says how it ended, or that it has not.
	exit() string
}

func (g *Group) launch(spec Spec, logPath string) (instance, error) {
	log, err := openLog(logPath)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if spec.Run != nil {
		return startFunction(spec, log), nil
	}
	defer log.Close() // the program has it
	return startProgram(spec, log, g.dir)
}

// function is a running Spec.Run.
type function struct {
	started time.Time
	cancel  context.CancelFunc
	done    chan struct{}
	outcome string // set before done is closed
}

func startFunction(spec Spec, log *os.File) *function {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), logKey{}, log))
	f := &function{started: time.Now(), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer log.Close()
		defer cancel()
		defer func() {
			if p := recover(); p != nil {
				fmt.Fprintf(log, "panic: %v\n\n%s", p, debug.Stack())
				f.outcome = fmt.Sprintf("panic: %v", p)
			}
		}()
		f.outcome = "returned"
		if err := spec.Run(ctx); err != nil {
			fmt.Fprintln(log, err)
			f.outcome = err.Error()
		}
	}()
	return f
}

func (f *function) pid() int                { return 0 }
func (f *function) since() time.Time        { return f.started }
func (f *function) terminate()              { f.cancel() }
func (f *function) kill()                   { f.cancel() }
func (f *function) exited() <-chan struct{} { return f.done }

func (f *function) exit() string {
	if isClosed(f.done) {
		return f.outcome
	}
	return "its Run ignores that its context has ended"
}
