// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replay_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"sluice.dev/webhook/decisionlog"
	"sluice.dev/webhook/replay"
)

// BenchmarkReplay replays 10,000 and 100,000 decisions with the built-in policies and one more, with the masks of the default. Its log
// has 2,000 pods of two containers, more than any cache holds, several times over. All differ in images, commands, paths and values of
// variables; those of "own names" also in the names of containers and variables, which the built-in policies read. It reports the
// processor time beside the time, which depends on the load of the machine.
func BenchmarkReplay(b *testing.B) {
	const pods = 2000
	replayer, err := replay.New(sources(newPolicy("team", `deny contains c.image if { some c in input.object.spec.containers; endswith(c.image, "7") }`)), nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, ownNames := range []bool{false, true} {
		r := newRecording(b, decisionlog.Options{Objects: true, Mask: decisionlog.DefaultMask, Unmasked: decisionlog.DefaultUnmasked}, sources()...)
		for i := range pods {
			r.answer(b, "pods", benchmarkPod(b, i, ownNames))
		}
		r.records(b) // ends the recording
		if lines := bytes.Count(r.log.Bytes(), []byte("\n")); lines != pods {
			b.Fatalf("recorded %d", lines)
		}
		for _, times := range []int{5, 50} {
			b.Run(fmt.Sprintf("ownNames=%t/%d", ownNames, pods*times), func(b *testing.B) { benchmarkReplay(b, replayer, r.log.Bytes(), pods, times) })
		}
	}
}

// benchmarkReplay replays a log of pods several times over, of which the last policy refuses every tenth.
func benchmarkReplay(b *testing.B, replayer *replay.Replayer, text []byte, pods, times int) {
	b.Helper()
	log := replay.Log{Name: "log", Open: func() (io.ReadCloser, error) {
		readers := make([]io.Reader, times)
		for i := range readers {
			readers[i] = bytes.NewReader(text)
		}
		return io.NopCloser(io.MultiReader(readers...)), nil
	}}
	var peak uint64
	before := processorTime(b)
	for b.Loop() {
		summary, err := replayer.Run(b.Context(), []replay.Log{log}, replay.Options{Examples: 3, Progress: func(lines int) {
			if lines%1000 == 0 {
				var memory runtime.MemStats
				runtime.ReadMemStats(&memory)
				peak = max(peak, memory.HeapAlloc)
			}
		}})
		if err != nil {
			b.Fatal(err)
		}
		if summary.Decisions != pods*times || summary.NowDenied != pods*times/10 || summary.Same != pods*times*9/10 {
			b.Fatalf("%+v", summary)
		}
	}
	b.ReportMetric(float64(len(text)/pods), "bytes/record")
	b.ReportMetric(float64(peak)/(1<<20), "MiB-heap")
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s")
	b.ReportMetric((processorTime(b)-before).Seconds()/float64(b.N), "s-processor")
}

// processorTime returns the processor time of the process until now.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// benchmarkPod returns a pod of a number, whose containers and variables have the same names as in others, or names of its own.
func benchmarkPod(tb testing.TB, number int, ownNames bool) []byte {
	tb.Helper()
	suffix := ""
	if ownNames {
		suffix = "-" + strconv.Itoa(number)
	}
	container := func(name string) map[string]any {
		var env []any
		for i := range 12 {
			env = append(env, map[string]any{"name": fmt.Sprintf("SETTING_%d%s", i, suffix), "value": fmt.Sprintf("value-%d-%d", number, i)})
		}
		return map[string]any{
			"name": name + suffix, "image": fmt.Sprintf("registry.example.org/team/%s:v%d", name, number), "env": env,
			"command":      []any{"python", "-m", "train", fmt.Sprintf("--seed=%d", number)},
			"resources":    map[string]any{"limits": map[string]any{"cpu": "8", "memory": "64Gi"}},
			"volumeMounts": []any{map[string]any{"name": "data", "mountPath": fmt.Sprintf("/data/%d", number)}},
		}
	}
	return marshal(tb, map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"generateName": fmt.Sprintf("train-%d-", number), "labels": map[string]any{"run": "run-" + strconv.Itoa(number)},
			"annotations": map[string]any{"sluice.dev/gpu": "500m", "sluice.dev/node-pools": "dgx-mig"},
		},
		"spec": map[string]any{
			"restartPolicy": "Never", "containers": []any{container("main"), container("sidecar")},
			"volumes": []any{map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": "data"}}},
		},
	})
}
