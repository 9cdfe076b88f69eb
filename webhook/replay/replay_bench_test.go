// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replay_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"testing"

	"sluice.dev/webhook/decisionlog"
	"sluice.dev/webhook/replay"
)

// BenchmarkReplay replays 100,000 decisions with the built-in policies and one more: 2,000 pods of two containers that differ in names,
// images and variables, more than any cache holds, 50 times over, with the masks of the default.
func BenchmarkReplay(b *testing.B) {
	const pods, times = 2000, 50
	r := newRecording(b, decisionlog.Options{Objects: true, Mask: decisionlog.DefaultMask, Unmasked: decisionlog.DefaultUnmasked}, sources()...)
	for i := range pods {
		r.answer(b, "pods", benchmarkPod(b, i))
	}
	r.records(b) // ends the recording
	if lines := bytes.Count(r.log.Bytes(), []byte("\n")); lines != pods {
		b.Fatalf("recorded %d", lines)
	}
	replayer, err := replay.New(sources(newPolicy("team", `deny contains c.image if { some c in input.object.spec.containers; endswith(c.image, "7") }`)))
	if err != nil {
		b.Fatal(err)
	}
	log := replay.Log{Name: "log", Open: func() (io.ReadCloser, error) {
		readers := make([]io.Reader, times)
		for i := range readers {
			readers[i] = bytes.NewReader(r.log.Bytes())
		}
		return io.NopCloser(io.MultiReader(readers...)), nil
	}}
	var peak uint64
	for b.Loop() {
		summary, err := replayer.Run(b.Context(), []replay.Log{log}, replay.Options{Examples: 3, Progress: func(lines int) {
			if lines%5000 == 0 {
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
	b.ReportMetric(float64(r.log.Len())/pods, "bytes/record")
	b.ReportMetric(float64(peak)/(1<<20), "MiB-heap")
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/100000")
}

// benchmarkPod returns a pod of a number.
func benchmarkPod(tb testing.TB, number int) []byte {
	tb.Helper()
	container := func(name string) map[string]any {
		var env []any
		for i := range 12 {
			env = append(env, map[string]any{"name": fmt.Sprintf("SETTING_%d_%d", number, i), "value": fmt.Sprintf("value-%d-%d", number, i)})
		}
		return map[string]any{
			"name": fmt.Sprintf("%s-%d", name, number), "image": fmt.Sprintf("registry.example.org/team/%s:v%d", name, number), "env": env,
			"command":      []any{"python", "-m", "train", fmt.Sprintf("--seed=%d", number)},
			"resources":    map[string]any{"limits": map[string]any{"cpu": "8", "memory": "64Gi"}},
			"volumeMounts": []any{map[string]any{"name": "data", "mountPath": fmt.Sprintf("/data/%d", number)}},
		}
	}
	return marshal(tb, map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"generateName": fmt.Sprintf("train-%d-", number), "labels": map[string]any{"run": fmt.Sprint("run-", number)},
			"annotations": map[string]any{"sluice.dev/gpu": "500m", "sluice.dev/node-pools": "dgx-mig"},
		},
		"spec": map[string]any{
			"restartPolicy": "Never", "containers": []any{container("main"), container("sidecar")},
			"volumes": []any{map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": "data"}}},
		},
	})
}
