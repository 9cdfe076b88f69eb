// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice.dev/api/v1alpha1"
)

// measurePeriod is the duration of a measurement.
const measurePeriod = 30 * time.Second

// BenchmarkIdleAgent measures an agent at rest as a process of its own: eight GPUs with seven
// instances each, 100 processes of pods, and a sample a second, with a pass every two seconds, as shipped, and with one
// every second. The simulated driver is another process behind a socket.
func BenchmarkIdleAgent(b *testing.B) {
	for _, interval := range []string{"2s", "1s"} {
		b.Run("PassEvery="+interval, func(b *testing.B) { benchmarkIdleAgent(b, interval) })
	}
}

func benchmarkIdleAgent(b *testing.B, interval string) {
	b.Helper()
	w := newTestNodeWith(b, 8)
	w.startDevicePlugin()
	var spec []v1alpha1.DesiredGPU
	for i := range 8 {
		spec = append(spec, parseLayout(w.gpuUUID(i), "1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3 1g.5gb@4 1g.5gb@5 1g.5gb@6"))
	}
	w.setSpec(spec...)
	program := filepath.Join(w.dir, "gpuagent")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "sluice.dev/cmd/gpuagent")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	w.writeFile("gpuagent.yaml", w.configFile(interval))
	agent := exec.Command(program, "--config", filepath.Join(w.dir, "gpuagent.yaml"))
	if err := agent.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = agent.Process.Signal(os.Interrupt); _ = agent.Wait() }()
	node := w.waitForStatus("partitioned", func(n *v1alpha1.GPUNode) error {
		if n.Status.ObservedGeneration != n.Generation || n.Status.Slices != "1g.5gb 0/56" {
			return fmt.Errorf("%s", n.Status.Slices)
		}
		return nil
	})
	for i := range 100 {
		pid := uint32(5_000_001 + i)
		instance := node.Status.GPUs[i%8].Instances[i/8%7]
		w.writeFile(fmt.Sprintf("proc/%d/cgroup", pid), fmt.Sprintf("0::/kubepods/burstable/pod0f3c1a52-7d1e-4a37-9d0a-%012d/x\n", i))
		if err := w.gpus.Attach(pid, instance.UUID, 100, 50); err != nil {
			b.Fatal(err)
		}
	}
	w.waitForStatus("in use", func(n *v1alpha1.GPUNode) error {
		if n.Status.Slices != "1g.5gb 56/56" {
			return fmt.Errorf("%s", n.Status.Slices)
		}
		return nil
	})
	b.ResetTimer()
	for range b.N {
		before := processCPU(b, agent.Process.Pid)
		begun := time.Now()
		<-time.After(measurePeriod)
		used := processCPU(b, agent.Process.Pid) - before
		b.ReportMetric(100*used.Seconds()/time.Since(begun).Seconds(), "%core")
		b.ReportMetric(processMemory(b, agent.Process.Pid, "VmRSS:"), "MiB")
		b.ReportMetric(processMemory(b, agent.Process.Pid, "RssAnon:"), "MiB-of-its-own")
	}
}

// processCPU returns a process's CPU time.
func processCPU(b *testing.B, pid int) time.Duration {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	const perTick = time.Second / 100 // the kernel's USER_HZ
	var sum time.Duration
	for _, field := range fields[11:13] { // utime and stime
		ticks, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(ticks) * perTick
	}
	return sum
}

// processMemory returns a process's memory in MiB: VmRSS includes its program's file, RssAnon does
// not.
func processMemory(b *testing.B, pid int, kind string) float64 {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if text, ok := strings.CutPrefix(line, kind); ok {
			kib, err := strconv.Atoi(strings.Fields(text)[0])
			if err != nil {
				b.Fatal(err)
			}
			return float64(kib) / 1024
		}
	}
	b.Fatalf("no %s", kind)
	return 0
}
