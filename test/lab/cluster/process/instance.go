// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

// instance is one run of a component.
type instance interface {
	// pid returns the process ID, 0 for a function.
	pid() int
	startTime() time.Time
	// terminate requests an orderly end, kill ends the instance; both return at once.
	terminate()
	kill()
	exited() <-chan struct{}
	// exit describes how the instance ended, or that it is still running.
	exit() string
	// exitCode returns Status.LastExitCode of an instance that has ended.
	exitCode() int
}

func (g *Group) launch(spec Spec, logPath string) (instance, error) {
	log, err := openLog(logPath)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if spec.Run != nil {
		return startFunction(spec, log), nil
	}
	defer log.Close() // the program has its own descriptor
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
func (f *function) startTime() time.Time    { return f.started }
func (f *function) terminate()              { f.cancel() }
func (f *function) kill()                   { f.cancel() }
func (f *function) exited() <-chan struct{} { return f.done }

func (f *function) exit() string {
	if isClosed(f.done) {
		return f.outcome
	}
	return "Run ignores the end of its context"
}

func (f *function) exitCode() int { return 1 }

// inheritedEnv lists the environment variables that a program inherits from this process.
// GOGC lets tests save processor time for memory.
var inheritedEnv = []string{"PATH", "HOME", "USER", "TMPDIR", "LANG", "TZ", "GOCOVERDIR", "GOGC", "SystemRoot"}

// program is a running Spec.Path.
type program struct {
	cmd     *exec.Cmd
	started time.Time
	done    chan struct{}
}

func startProgram(spec Spec, log *os.File, dir string) (*program, error) {
	cmd := exec.Command(spec.Path, spec.Args...) //nolint:noctx // the group ends it, first with SIGTERM
	cmd.Dir, cmd.Stdout, cmd.Stderr = spec.WorkDir, log, log
	cmd.Env = append(environment(), spec.Env...)
	cmd.SysProcAttr = processAttributes()
	if spec.User != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: spec.User.UID, Gid: spec.User.GID}
	}
	if err := forkOnThread(cmd); err != nil {
		return nil, err
	}
	p := &program{cmd: cmd, started: time.Now(), done: make(chan struct{})}
	removeRecord, err := saveRecord(dir, spec.Name, spec.Path, cmd.Process.Pid)
	go p.reap(removeRecord)
	if err != nil {
		p.kill()
		<-p.done
		return nil, err
	}
	return p, nil
}

// reap waits for the program's end and kills its remaining children. It does so before it
// releases the process ID: until then the kernel does not reuse the ID or the process
// group.
func (p *program) reap(removeRecord func()) {
	waitForExitStatus(p.cmd.Process.Pid)
	killGroup(p.cmd.Process.Pid)
	// The error repeats the exit status, which exit reads from the state.
	_ = p.cmd.Wait()
	removeRecord()
	close(p.done)
}

func (p *program) pid() int                { return p.cmd.Process.Pid }
func (p *program) startTime() time.Time    { return p.started }
func (p *program) exited() <-chan struct{} { return p.done }

// Signals fail if the process has ended; that needs no handling.
func (p *program) terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }
func (p *program) kill()      { _ = p.cmd.Process.Kill() }

func (p *program) exit() string {
	if isClosed(p.done) {
		return p.cmd.ProcessState.String()
	}
	return "still running after SIGKILL"
}

func (p *program) exitCode() int {
	if !isClosed(p.done) {
		return int(syscall.SIGKILL) + signalExitCode
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return int(status.Signal()) + signalExitCode
	}
	return p.cmd.ProcessState.ExitCode()
}

// signalExitCode is added to the number of the signal that ended a program, as in a shell.
const signalExitCode = 128

func environment() []string {
	var env []string
	for _, name := range inheritedEnv {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// forkRequests serves the thread that starts all programs. The kernel kills a child with
// its parent when the thread that forked it ends. So this thread must live as long as the
// process, and no other goroutine may run on it.
var forkRequests = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread() // never unlocked: the loop does not end
		for do := range work {
			do()
		}
	}()
	return work
})

func forkOnThread(cmd *exec.Cmd) error {
	result := make(chan error)
	forkRequests() <- func() { result <- cmd.Start() }
	return <-result
}
