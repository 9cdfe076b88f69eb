// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// inheritedEnv is what a program is given of this process's environment.
var inheritedEnv = []string{"PATH", "HOME", "USER", "TMPDIR", "LANG", "TZ", "GOCOVERDIR", "SystemRoot"}

// program is a running Spec.Path.
type program struct {
	cmd     *exec.Cmd
	started time.Time
	done    chan struct{}
}

func startProgram(spec Spec, log *os.File, dir string) (*program, error) {
	cmd := exec.Command(spec.Path, spec.Args...) //nolint:noctx // the group ends it, with SIGTERM first
	cmd.Dir, cmd.Stdout, cmd.Stderr = spec.WorkDir, log, log
	cmd.Env = append(environment(), spec.Env...)
	cmd.SysProcAttr = attributes()
	if err := fork(cmd); err != nil {
		return nil, err
	}
	p := &program{cmd: cmd, started: time.Now(), done: make(chan struct{})}
	forget, err := remember(dir, spec.Name, spec.Path, cmd.Process.Pid)
	go p.reap(forget)
	if err != nil {
		p.kill()
		<-p.done
		return nil, err
	}
	return p, nil
}

// reap waits for the program's end. What it started itself goes with it, and is
// killed before the program's id is given back to the kernel: until then
// neither the id nor that of its process group can be somebody else's.
func (p *program) reap(forget func()) {
	awaitEnd(p.cmd.Process.Pid)
	killGroup(p.cmd.Process.Pid)
	// The error is the exit status again, and exit reads that from the state.
	_ = p.cmd.Wait()
	forget()
	close(p.done)
}

func (p *program) pid() int                { return p.cmd.Process.Pid }
func (p *program) since() time.Time        { return p.started }
func (p *program) exited() <-chan struct{} { return p.done }

// Signals to a process that has ended meanwhile fail, and need not arrive.
func (p *program) terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }
func (p *program) kill()      { _ = p.cmd.Process.Kill() }

func (p *program) exit() string {
	if isClosed(p.done) {
		return p.cmd.ProcessState.String()
	}
	return "it is still running after SIGKILL"
}

func environment() []string {
	var env []string
	for _, name := range inheritedEnv {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// forks is served by the one thread that starts all programs. "Kill the child
// when its parent dies" means to the kernel: when the thread that forked it
// ends. So that thread must live as long as the process does, and no other
// goroutine may run on it.
var forks = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread() // and never unlock: the loop never ends
		for do := range work {
			do()
		}
	}()
	return work
})

func fork(cmd *exec.Cmd) error {
	result := make(chan error)
	forks() <- func() { result <- cmd.Start() }
	return <-result
}
