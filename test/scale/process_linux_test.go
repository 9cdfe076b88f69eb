// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
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

	"sluice.dev/test/clustertest"
)

var binaryFlag = flag.String("lifecycle", "", "the lifecycle controller's binary; where this is empty, that in the folder SLUICE_BIN, or one that is built")

// buildDir contains the binary.
var buildDir string

// lifecycleBinary builds the lifecycle binary once for all tests.
var lifecycleBinary = sync.OnceValues(func() (string, error) {
	if *binaryFlag != "" {
		return *binaryFlag, nil
	}
	return filepath.Join(buildDir, "lifecycle"), clustertest.BuildPrograms(context.Background(), buildDir, "lifecycle")
})

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	var err error
	if buildDir, err = os.MkdirTemp("", "sluice-scale-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(buildDir)
	os.Exit(code)
}

// process is a running lifecycle process.
type process struct {
	command *exec.Cmd
	metrics string // address
	log     *os.File
	started time.Time
	once    sync.Once
}

// startLifecycle starts lifecycle with additional lines of configuration. The process ends
// with the test at the latest.
func startLifecycle(tb testing.TB, kubeconfig, clockFile string, stopLimiterPercent int, more ...string) *process {
	tb.Helper()
	program, err := lifecycleBinary()
	mustSucceed(tb, err)
	p := &process{metrics: freeAddress(tb)}
	dir := tb.TempDir()
	file := filepath.Join(dir, "lifecycle.yaml")
	text := fmt.Sprintf("apiVersion: config.sluice.dev/v1alpha1\nkind: LifecycleConfig\nkubeconfig: %s\nclockFile: %s\nmetrics: %s\nmetricsAccess: Open\nhealth: 127.0.0.1:0\nstopping: {stopLimiter: {percent: %d}}\n",
		kubeconfig, clockFile, p.metrics, stopLimiterPercent) + strings.Join(more, "")
	mustSucceed(tb, os.WriteFile(file, []byte(text), 0o600))
	p.log, err = os.Create(filepath.Join(dir, "lifecycle.log"))
	mustSucceed(tb, err)
	p.command = exec.CommandContext(context.Background(), program, "--config", file)
	p.command.Stdout, p.command.Stderr = p.log, p.log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.started = time.Now()
	mustSucceed(tb, p.command.Start())
	tb.Cleanup(func() { p.stop(tb) })
	return p
}

// stop terminates the process like a kubelet, and prints its log if the test failed.
func (p *process) stop(tb testing.TB) {
	p.once.Do(func() {
		_ = p.command.Process.Signal(syscall.SIGTERM) // the process may have ended
		deadline := time.AfterFunc(30*time.Second, func() { _ = p.command.Process.Kill() })
		_ = p.command.Wait() // the log shows how it ended
		deadline.Stop()
		p.log.Close()
		if raw, _ := os.ReadFile(p.log.Name()); tb.Failed() && len(raw) > 0 {
			tb.Logf("end of the log:\n%s", raw[max(0, len(raw)-4000):])
		}
	})
}

// memoryMiB returns VmRSS or VmHWM of the process in MiB.
func (p *process) memoryMiB(tb testing.TB, line string) float64 {
	raw := p.readProcFile(tb, "status")
	_, after, _ := bytes.Cut(raw, []byte(line+":"))
	fields := bytes.Fields(after)
	if len(fields) == 0 {
		tb.Fatalf("no %s in the status of process %d", line, p.command.Process.Pid)
	}
	kilobytes, err := strconv.ParseInt(string(fields[0]), 10, 64)
	mustSucceed(tb, err)
	return float64(kilobytes) / 1024
}

// cpuTime returns the CPU time of the process.
func (p *process) cpuTime(tb testing.TB) time.Duration {
	raw := p.readProcFile(tb, "stat")
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:]) // the process name may contain spaces
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		mustSucceed(tb, err)
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100) // USER_HZ is 100 everywhere
}

func (p *process) readProcFile(tb testing.TB, file string) []byte {
	tb.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.command.Process.Pid, file))
	mustSucceed(tb, err)
	return raw
}

// freeAddress returns a free loopback address.
func freeAddress(tb testing.TB) string {
	var config net.ListenConfig
	listener, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	mustSucceed(tb, err)
	defer listener.Close()
	return listener.Addr().String()
}

func mustSucceed(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// controllersIdle reports whether the clock controller has reconciled at least a number of
// clocks, and the queues of all controllers are empty.
func (p *process) controllersIdle(tb testing.TB, clocks int) bool {
	reconciled, left := 0.0, 0.0
	for line, value := range p.scrapeMetrics(tb) {
		switch {
		case strings.HasPrefix(line, `controller_runtime_reconcile_total{controller="clock"`):
			reconciled += value
		case strings.HasPrefix(line, "workqueue_depth{"), strings.HasPrefix(line, "controller_runtime_active_workers{"):
			left += value
		}
	}
	return reconciled >= float64(clocks) && left == 0
}

// apiRequests returns the number of API requests of the process.
func (p *process) apiRequests(tb testing.TB) (n float64) {
	for line, value := range p.scrapeMetrics(tb) {
		if strings.HasPrefix(line, "rest_client_requests_total{") {
			n += value
		}
	}
	return n
}

// scrapeMetrics returns the metrics of the process, or nil if it does not serve them yet.
func (p *process) scrapeMetrics(tb testing.TB) map[string]float64 {
	request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "http://"+p.metrics+"/metrics", nil)
	mustSucceed(tb, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	m := map[string]float64{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "} ")
		if number, err := strconv.ParseFloat(value, 64); err == nil {
			m[name+"}"] = number
		}
	}
	return m
}
