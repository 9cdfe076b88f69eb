// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"

	"sluice.dev/test/clustertest"
)

// measurePeriod is the duration of a measurement.
const measurePeriod = 30 * time.Second

// profilePath is where BenchmarkIdleAgent writes a processor profile of the measurement, and the heap beside it.
var profilePath = flag.String("agent-profile", "", "write a processor profile of the agent at five times its pace to `FILE`, and its heap to FILE.heap")

// otherAgent replaces the program that is measured.
var otherAgent = flag.String("agent", "", "measure this `PROGRAM`, such as an earlier gpuagent, by an absolute path")

// BenchmarkIdleAgent measures an agent at rest as a process of its own: eight GPUs with seven instances each, 104
// processes, a pod on each instance, and a sample a second, with a pass every two seconds, as shipped. The binding
// loads a C library.
func BenchmarkIdleAgent(b *testing.B) {
	w := newTestNode(b)
	w.startDevicePlugin()
	library := filepath.Join(w.dir, "libnvidia-ml.so.1")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-DPROCESSES=13", "-o", library, "../status/testdata/dgx.c").CombinedOutput(); err != nil {
		b.Skipf("compiling the library: %v\n%s", err, out)
	}
	w.addIdleWork()
	program := *otherAgent
	if program == "" {
		program = filepath.Join(w.dir, "gpuagent")
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "sluice.dev/cmd/gpuagent")
		if out, err := build.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
	}
	ports, err := clustertest.FreePorts(1)
	if err != nil {
		b.Fatal(err)
	}
	pass, pace := "2s", ""
	if *profilePath != "" {
		pass, pace = "400ms", "sample: 200ms, "
	}
	metrics := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	w.writeFile("gpuagent.yaml", strings.NewReplacer("metrics: 127.0.0.1:0",
		"driver: {library: "+library+"}\nmetrics: "+metrics+"\nmetricsAccess: Open\nprofiling: true\nhostRoot: "+w.dir, "intervals: {", "intervals: {"+pace).Replace(w.configFile(pass)))
	agent := exec.Command(program, "--config", filepath.Join(w.dir, "gpuagent.yaml"))
	agent.Stderr = os.Stderr
	if err := agent.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = agent.Process.Signal(os.Interrupt); _ = agent.Wait() }()
	w.waitForStatus("in use", func(n *v1alpha1.GPUNode) error {
		if n.Status.Slices != "1g.10gb 56/56" || len(n.Status.Pods) != idlePods {
			return fmt.Errorf("%s, %d pods", n.Status.Slices, len(n.Status.Pods))
		}
		return nil
	})
	b.ResetTimer()
	for range b.N {
		before := processCPU(b, agent.Process.Pid)
		begun := time.Now()
		if *profilePath == "" {
			<-time.After(measurePeriod)
		} else {
			w.download(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", metrics, measurePeriod/time.Second), *profilePath)
		}
		used := processCPU(b, agent.Process.Pid) - before
		b.ReportMetric(100*used.Seconds()/time.Since(begun).Seconds(), "%core")
		b.ReportMetric(processMemory(b, agent.Process.Pid, "VmRSS:"), "MiB")
		b.ReportMetric(processMemory(b, agent.Process.Pid, "RssAnon:"), "MiB-of-its-own")
	}
	if *profilePath != "" {
		w.download("http://"+metrics+"/debug/pprof/heap", *profilePath+".heap")
	}
}

// idlePods is the number of pods in BenchmarkIdleAgent, one for each instance.
const idlePods = 56

// addIdleWork adds the pods, their devices in the kubelet, and the cgroups of their processes.
func (w *testNode) addIdleWork() {
	w.Helper()
	assigned := map[string]string{}
	for i := range idlePods {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", w.name, i), Namespace: "default"},
			Spec: corev1.PodSpec{NodeName: w.name, Containers: []corev1.Container{{
				Name: "main", Image: "train", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/mig-1g.10gb": resource.MustParse("1")}},
			}}},
		}
		w.create(pod)
		assigned[pod.Name] = fmt.Sprintf("MIG-00000000-0000-4000-8000-%012d", i)
		for process := i % 7; process < 13; process += 7 {
			pid := 5_000_000 + i/7*13 + process
			w.writeFile(fmt.Sprintf("proc/%d/cgroup", pid), "0::/kubepods/burstable/pod"+string(pod.UID)+"/x\n")
		}
	}
	w.kubelet.assignAll(assigned)
}

// download writes what an address serves to a file.
func (w *testNode) download(address, path string) {
	w.Helper()
	response, err := http.Get(address) //nolint:gosec // the agent's own address
	if err != nil {
		w.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		w.Fatalf("%s: %s: %v", address, response.Status, err)
	}
	if err := os.WriteFile(path, body, 0o600); err != nil {
		w.Fatal(err)
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
