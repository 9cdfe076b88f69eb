// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/nvml/simulator"
)

var placement = nvml.Placement{Start: 0, Size: 1}

// TestFaultInjection checks which calls fail, and their effects.
func TestFaultInjection(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault simulator.Fault
		want  []nvml.Error // of creating at 0, 1, 2, 3
		made  int
	}{
		{"all", simulator.Fault{Err: nvml.ErrUnknown, Method: "CreateInstance"}, []nvml.Error{999, 999, 999, 999}, 0},
		{"the third", simulator.Fault{Err: nvml.ErrTimeout, Method: "CreateInstance", Skip: 2, Times: 1}, []nvml.Error{0, 0, 10, 0}, 3},
		{
			"the third, late",
			simulator.Fault{Err: nvml.ErrTimeout, Method: "CreateInstance", Skip: 2, Times: 1, AfterEffect: true},
			[]nvml.Error{0, 0, 10, 0},
			4,
		},
		{"of another GPU", simulator.Fault{Err: nvml.ErrTimeout, GPU: second}, []nvml.Error{0, 0, 0, 0}, 4},
		{"at a place", simulator.Fault{
			Err: nvml.ErrNotReady, Method: "CreateInstance", Match: func(c simulator.Call) bool { return c.At.Start == 1 },
		}, []nvml.Error{0, 27, 0, 0}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newInitializedNode(t, migGPU("A30", first))
			over := n.Fail(test.fault)
			for start, want := range test.want {
				_, err := n.CreateInstance(first, 14, nvml.Placement{Start: start, Size: 1})
				requireError(t, "CreateInstance", err, want)
			}
			over()
			if got := requireResult(n.Instances(first))(t); len(got) != test.made {
				t.Errorf("%d instances were made, want %d", len(got), test.made)
			}
		})
	}
}

// TestHooks checks the order of a call's hooks, which may use the node.
func TestHooks(t *testing.T) {
	n := newInitializedNode(t, migGPU("A30", first))
	var told []string
	count := func() string {
		other := n.Open()
		if other.Init() != nil {
			return "?"
		}
		return string(rune('0' + len(requireResult(other.Instances(first))(t))))
	}
	counting := false
	n.Hook(simulator.Hooks{
		Before: func(c simulator.Call) {
			skipIfNested(&counting, func() { told = append(told, "before "+c.Method+" "+count()) })
		},
		After: func(c simulator.Call, _ error) {
			skipIfNested(&counting, func() { told = append(told, "after "+c.Method+" "+count()) })
		},
		Changed: func() { skipIfNested(&counting, func() { told = append(told, "changed "+count()) }) },
	})
	requireResult(n.CreateInstance(first, 14, placement))(t)
	_, err := n.CreateInstance(first, 14, placement)
	requireError(t, "CreateInstance again", err, nvml.ErrInsufficientResources)
	want := []string{
		"before CreateInstance 0", "changed 1", "after CreateInstance 1",
		"before CreateInstance 1", "after CreateInstance 1",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
}

// skipIfNested calls do unless it is running already.
func skipIfNested(doing *bool, it func()) {
	if !*doing {
		*doing = true
		it()
		*doing = false
	}
}

// TestCrash ends the caller before and after each effect: the node continues.
func TestCrash(t *testing.T) {
	for _, after := range []bool{false, true} {
		n := newInitializedNode(t, migGPU("A30", first))
		crash := func(c simulator.Call) {
			if c.Method == "CreateInstance" {
				panic("crash")
			}
		}
		if after {
			n.Hook(simulator.Hooks{After: func(c simulator.Call, _ error) { crash(c) }})
		} else {
			n.Hook(simulator.Hooks{Before: crash})
		}
		func() {
			defer func() { recover() }()
			n.CreateInstance(first, 14, placement)
			t.Error("the call returned")
		}()
		if got := requireResult(n.Instances(first))(t); (len(got) == 1) != after {
			t.Errorf("%d instances after a crash after the effect: %v", len(got), after)
		}
	}
}

// TestBootDuringACall boots before the effect, and after it.
func TestBootDuringACall(t *testing.T) {
	for _, after := range []bool{false, true} {
		n := newInitializedNode(t, migGPU("A30", first))
		boot := func(c simulator.Call) {
			if c.Method == "CreateInstance" {
				n.Boot()
			}
		}
		if after {
			n.Hook(simulator.Hooks{After: func(c simulator.Call, _ error) { boot(c) }})
		} else {
			n.Hook(simulator.Hooks{Before: boot})
		}
		_, err := n.CreateInstance(first, 14, placement)
		requireError(t, "CreateInstance", err, nvml.ErrUnknown)
		requireError(t, "Init", n.Init(), 0)
		if got := requireResult(n.Instances(first))(t); len(got) != 0 {
			t.Errorf("%d instances outlived the boot", len(got))
		}
	}
}

// TestLatency checks the durations of calls with a skipping clock.
func TestLatency(t *testing.T) {
	clock := simulator.NewSkipClock(startTime)
	n := newNode(t, simulator.Config{GPUs: []simulator.GPU{migGPU("A30", first)}, Clock: clock, Latency: simulator.MeasuredLatency()})
	took := func(call func()) time.Duration {
		start := clock.Now()
		call()
		return clock.Now().Sub(start)
	}
	const ms = time.Millisecond
	for range 50 {
		if d := took(func() { requireResult(n.CreateInstance(first, 14, placement))(t) }); d < 50*ms || d > 130*ms {
			t.Errorf("CreateInstance took %v", d)
		}
		if d := took(func() { n.DestroyInstance(first, 0) }); d < 120*ms || d > 260*ms {
			t.Errorf("DestroyInstance took %v", d)
		}
		if d := took(func() { n.GPUs() }); d > 2*ms {
			t.Errorf("GPUs took %v", d)
		}
	}
}

// TestConcurrentPrograms runs many programs on one node, for the race detector.
func TestConcurrentPrograms(t *testing.T) {
	var changes sync.Mutex
	var last []byte
	n := newInitializedNode(t, migGPU("A100-40GB", first), migGPU("H100-80GB", second))
	n.Hook(simulator.Hooks{Changed: func() {
		changes.Lock()
		defer changes.Unlock()
		last, _ = n.Snapshot()
	}})
	var programs sync.WaitGroup
	for k := range 8 {
		programs.Go(func() {
			l := n.Open()
			for round := range 100 {
				if round%10 == 0 {
					l.Init() // again after the boot
				}
				gpu := []string{first, second}[(k+round)%2]
				it, err := l.CreateInstance(gpu, oneG, nvml.Placement{Start: (k + round) % 7, Size: 1})
				if err == nil {
					if c, err := l.CreateComputeInstance(gpu, it.ID); err == nil {
						n.Attach(uint32(k), c.UUID, 10, 10)
						l.Processes(gpu)
						n.Detach(uint32(k))
						l.DestroyComputeInstance(gpu, it.ID, c.ID)
					}
					l.DestroyInstance(gpu, it.ID)
				}
				l.Instances(gpu)
				l.RemainingCapacity(gpu, threeG)
				if k == 0 && round%20 == 0 {
					n.Fail(simulator.Fault{Method: "Instances", Times: 1, Err: nvml.ErrUnknown})
					if err := n.Check(); err != nil {
						t.Error(err)
					}
				}
				if k == 1 && round == 50 {
					n.Boot()
				}
			}
		})
	}
	programs.Wait()
	if now := requireResult(n.Snapshot())(t); string(now) != string(last) {
		t.Errorf("the last change was not reported:\n%s\n%s", last, now)
	}
}
