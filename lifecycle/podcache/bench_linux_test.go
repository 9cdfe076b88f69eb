// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"sluice.dev/api/workload"
	"sluice.dev/test/scale/stubapi"
)

// syncServerEnv makes the test binary fill a Store from the server at that address and report
// the cost.
const syncServerEnv = "SLUICE_GPUPODS_CHILD_OF"

func TestMain(m *testing.M) {
	if host := os.Getenv(syncServerEnv); host != "" {
		if err := json.NewEncoder(os.Stdout).Encode(measureSync(host)); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// syncCost is the cost of a complete list.
type syncCost struct {
	Pods                     int
	Seconds                  float64
	Resident, Peak, HeapLive int64 // bytes
}

// measureSync runs in the child process.
func measureSync(host string) syncCost {
	before := heapInUse()
	store, err := New(&rest.Config{Host: host, QPS: -1}, Settings{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	began := time.Now()
	go func() { _ = store.Start(ctx) }()
	if err := store.WaitForSync(ctx); err != nil {
		panic(err)
	}
	c := syncCost{Pods: store.Len(), Seconds: time.Since(began).Seconds(), Resident: parseMemoryLine("VmRSS:"), Peak: parseMemoryLine("VmHWM:")}
	c.HeapLive = heapInUse() - before
	runtime.KeepAlive(store)
	return c
}

// heapInUse returns the size of the live heap.
func heapInUse() int64 {
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// parseMemoryLine parses a line of /proc/self/status, in bytes.
func parseMemoryLine(line string) int64 {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	_, after, _ := bytes.Cut(raw, []byte(line))
	kilobytes, err := strconv.ParseInt(string(bytes.Fields(after)[0]), 10, 64)
	if err != nil {
		panic(err)
	}
	return kilobytes << 10
}

// BenchmarkSync fills a Store with 100 000 GPU pods in a process of its own, and reports the
// resident memory after the list, its peak, and the heap of the pods.
func BenchmarkSync(b *testing.B) {
	for mode, pages := range listModes {
		b.Run(mode, func(b *testing.B) {
			server, err := stubapi.New(nil)
			if err != nil {
				b.Fatal(err)
			}
			server.WithoutWatchList = pages
			fleet := stubapi.LargeFleet()
			if err := fleet.FillPods(server); err != nil {
				b.Fatal(err)
			}
			config, err := server.Listen(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				child := exec.CommandContext(b.Context(), os.Args[0])
				child.Env = append(os.Environ(), syncServerEnv+"="+config.Host)
				child.Stderr = os.Stderr
				out, err := child.Output()
				var c syncCost
				if err == nil {
					err = json.Unmarshal(out, &c)
				}
				if err != nil || c.Pods != fleet.Roots*fleet.PodsPerRoot {
					b.Fatal(fmt.Errorf("%d pods: %w", c.Pods, err))
				}
				b.ReportMetric(c.Seconds, "s/sync")
				b.ReportMetric((child.ProcessState.UserTime() + child.ProcessState.SystemTime()).Seconds(), "cpu-s/sync")
				b.ReportMetric(float64(c.Resident)/(1<<20), "MiB-resident")
				b.ReportMetric(float64(c.Peak)/(1<<20), "MiB-peak")
				b.ReportMetric(float64(c.HeapLive)/float64(c.Pods), "B-heap/pod")
			}
		})
	}
}

// BenchmarkRead converts one pod to its record.
func BenchmarkRead(b *testing.B) {
	p := stubapi.LargeFleet().Pod(0, 0)
	r := podReader{gpuNames: workload.DefaultResourceUnits()}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := r.read(p); !ok {
			b.Fatal("not a GPU pod")
		}
	}
}
