// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

var built = flag.String("lifecycle", "", "the lifecycle controller's binary; built where this is empty")

// folder is where the binary is built.
var folder string

// binary is the lifecycle controller, built once for all that is measured.
var binary = sync.OnceValues(func() (string, error) {
	if *built != "" {
		return *built, nil
	}
	file := filepath.Join(folder, "lifecycle")
	build := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "sluice.dev/cmd/lifecycle")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the lifecycle controller: %w\n%s", err, out)
	}
	return file, nil
})

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	var err error
	if folder, err = os.MkdirTemp("", "sluice-scale-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// process is a lifecycle controller that runs.
type process struct {
	command *exec.Cmd
	metrics string // address
	log     *os.File
	started time.Time
	once    sync.Once
}

// run starts one, with more lines of its configuration; it ends with the test at the
// latest.
func run(tb testing.TB, kubeconfig, clockFile string, brakePercent int, more ...string) *process {
	tb.Helper()
	program, err := binary()
	check(tb, err)
	p := &process{metrics: freeAddress(tb)}
	dir := tb.TempDir()
	file := filepath.Join(dir, "lifecycle.yaml")
	text := fmt.Sprintf("apiVersion: config.sluice.dev/v1alpha1\nkind: LifecycleConfig\nkubeconfig: %s\nclockFile: %s\nmetrics: %s\nhealth: 127.0.0.1:0\nstopping: {brake: {percent: %d}}\n",
		kubeconfig, clockFile, p.metrics, brakePercent) + strings.Join(more, "")
	check(tb, os.WriteFile(file, []byte(text), 0o600))
	p.log, err = os.Create(filepath.Join(dir, "lifecycle.log"))
	check(tb, err)
	p.command = exec.CommandContext(context.Background(), program, "--config", file)
	p.command.Stdout, p.command.Stderr = p.log, p.log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.started = time.Now()
	check(tb, p.command.Start())
	tb.Cleanup(func() { p.stop(tb) })
	return p
}

// stop ends the process as a node does, and shows what it logged if the test
// failed.
func (p *process) stop(tb testing.TB) {
	p.once.Do(func() {
		_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended
		deadline := time.AfterFunc(30*time.Second, func() { _ = p.command.Process.Kill() })
		_ = p.command.Wait() // how it ended its log says
		deadline.Stop()
		p.log.Close()
		if raw, _ := os.ReadFile(p.log.Name()); tb.Failed() && len(raw) > 0 {
			tb.Logf("the end of its log:\n%s", raw[max(0, len(raw)-4000):])
		}
	})
}

// resident reads a line of the process's status, VmRSS or VmHWM, in MiB.
func (p *process) resident(tb testing.TB, line string) float64 {
	raw := p.proc(tb, "status")
	_, after, _ := bytes.Cut(raw, []byte(line+":"))
	fields := bytes.Fields(after)
	if len(fields) == 0 {
		tb.Fatalf("%s is not in the status of process %d", line, p.command.Process.Pid)
	}
	kilobytes, err := strconv.ParseInt(string(fields[0]), 10, 64)
	check(tb, err)
	return float64(kilobytes) / 1024
}

// computed is how much CPU time the process has had.
func (p *process) computed(tb testing.TB) time.Duration {
	raw := p.proc(tb, "stat")
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:]) // a name may have spaces
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		check(tb, err)
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100) // USER_HZ is 100 everywhere
}

func (p *process) proc(tb testing.TB, file string) []byte {
	tb.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.command.Process.Pid, file))
	check(tb, err)
	return raw
}

// freeAddress is a port of loopback that was free a moment ago.
func freeAddress(tb testing.TB) string {
	var config net.ListenConfig
	listener, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	check(tb, err)
	defer listener.Close()
	return listener.Addr().String()
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
