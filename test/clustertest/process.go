// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// startTimeout is for a machine on which much else runs. It only delays the report of a failure.
	startTimeout = 20 * time.Minute
	// stopTimeout is how long a process may take to stop before it is killed.
	stopTimeout = 2 * time.Minute
	// restartDelay is the time after which a process that is kept running starts again.
	restartDelay = time.Second
)

// Process is a program that runs for a test. It never outlives the test binary.
type Process struct {
	program   string
	arguments []string
	log       string
	restarts  bool

	stopping chan struct{}
	ended    chan struct{} // closed after err is set
	err      error

	mu      sync.Mutex
	stopped bool // stopping is closed
	cmd     *exec.Cmd
}

// ReadyFunc returns nil when a process serves requests.
type ReadyFunc func(context.Context) error

// StartProcess starts a program whose output goes to the file log, and returns when ready returns nil; nil waits for nothing. The caller
// stops the process.
func StartProcess(ctx context.Context, log string, ready ReadyFunc, program string, arguments ...string) (*Process, error) {
	return startProcess(ctx, &Process{program: program, arguments: arguments, log: log}, ready)
}

// KeepProcess is StartProcess for a program that starts again a second after it has ended, until Stop.
func KeepProcess(ctx context.Context, log string, ready ReadyFunc, program string, arguments ...string) (*Process, error) {
	return startProcess(ctx, &Process{program: program, arguments: arguments, log: log, restarts: true}, ready)
}

func startProcess(ctx context.Context, p *Process, ready ReadyFunc) (*Process, error) {
	p.stopping, p.ended = make(chan struct{}), make(chan struct{})
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.program, err)
	}
	if ready == nil {
		return p, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for interval := firstPollInterval; ; interval = min(interval*5/4, maxPollInterval) {
		err := ready(ctx)
		if err == nil {
			return p, nil
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("start %s: it ended: %w\n%s", p.program, errors.Join(p.err, err), tailOf(p.log))
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("start %s: %w\n%s", p.program, err, tailOf(p.log)), p.Stop())
		case <-time.After(interval):
		}
	}
}

// run runs the program. Linux ends it with the thread that started it, so the goroutine keeps its thread.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	err := p.start()
	started <- err
	for err == nil {
		err = p.cmd.Wait()
		if p.restarts {
			select {
			case <-p.stopping:
			case <-time.After(restartDelay):
				err = p.start()
				continue
			}
		}
		break
	}
	p.err = err
	close(p.ended)
}

func (p *Process) start() error {
	output, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command(p.program, p.arguments...) //nolint:noctx // Stop ends it
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = output, output, endWithThread()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return context.Canceled
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd = cmd
	return nil
}

func tailOf(log string) string {
	tail, err := tailSince(log, 0)
	if err != nil {
		return err.Error()
	}
	return tail
}

// PID returns the process ID.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the process, unless it has ended.
func (p *Process) Signal(signal os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(signal)
}

// Stop terminates the process as a kubelet does, and waits until it has ended.
func (p *Process) Stop() error {
	p.mu.Lock()
	if !p.stopped {
		p.stopped = true
		close(p.stopping)
	}
	p.mu.Unlock()
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopTimeout):
		p.Signal(syscall.SIGKILL)
		<-p.ended
		return fmt.Errorf("%s did not stop within %s:\n%s", p.program, stopTimeout, tailOf(p.log))
	}
}

// HTTPReady returns a check that a URL answers with status 200.
func HTTPReady(url string) ReadyFunc {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, response.Status)
		}
		return nil
	}
}

// Clusters choose ports of this range too: it lies below the one that the kernel gives to outgoing connections.
const firstPort, lastPort = 20000, 32000

// reservations keeps ports from clusters and from other tests: an open UDP socket of the same number reserves a port.
var reservations struct {
	sync.Mutex
	held []net.PacketConn
}

// FreePorts returns n free ports on loopback. No cluster takes them while this process runs.
func FreePorts(n int) ([]int, error) {
	reservations.Lock()
	defer reservations.Unlock()
	var ports []int
	var listen net.ListenConfig
	for range 1000 {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		mark, err := listen.ListenPacket(context.Background(), "udp", address)
		if err != nil {
			continue
		}
		listener, err := listen.Listen(context.Background(), "tcp", address)
		if err != nil {
			mark.Close()
			continue
		}
		listener.Close()
		reservations.held = append(reservations.held, mark)
		ports = append(ports, port)
	}
	return nil, errors.New("find free ports on loopback: none of a thousand is free")
}
