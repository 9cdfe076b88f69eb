// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package utilization

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml"
)

const (
	nvmlSource  = v1alpha1.UtilizationNVML
	gpmSource   = v1alpha1.UtilizationGPM
	unavailable = v1alpha1.UtilizationUnavailable
)

// run is a node whose samples follow each other by a second.
type run struct {
	tracker Tracker
	now     time.Time
	pods    map[types.UID]Pod
	last    Result
}

var began = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func newRun() *run { return &run{now: began} }

// sample adds samples of the devices for a time.
func (r *run) sample(lasts time.Duration, devices ...Device) {
	for end := r.now.Add(lasts); r.now.Before(end); {
		r.now = r.now.Add(time.Second)
		r.last = r.tracker.Add(Sample{At: r.now, Devices: devices, Pods: r.pods})
	}
}

// idleFor returns the idle time of a pod, or -1 if it is unknown.
func (r *run) idleFor(pod types.UID) time.Duration {
	if last := r.last.Pods[pod].LastActive; last != nil {
		return r.now.Sub(*last)
	}
	return -1
}

// newGPU returns a GPU whose processes are measured: by pod, with 1000 MiB each.
func newGPU(uuid string, busy map[types.UID]int, assigned ...types.UID) Device {
	d := Device{UUID: uuid, GPU: uuid, Source: nvmlSource, PerProcess: true, Busy: nvml.UnknownPercent, Pods: assigned}
	for pod, percent := range busy {
		d.Processes = append(d.Processes, Process{Pod: pod, MemoryMiB: 1000, Busy: percent})
	}
	return d
}

// newMIGDevice returns a MIG device that is measured as a whole.
func newMIGDevice(source v1alpha1.UtilizationSource, busy int, processes []types.UID, assigned ...types.UID) Device {
	d := Device{UUID: "MIG-1", GPU: "GPU-1", Source: source, Busy: busy, Pods: assigned}
	for _, pod := range processes {
		d.Processes = append(d.Processes, Process{Pod: pod, MemoryMiB: 1000})
	}
	return d
}

// The rules for each kind of device: what is measured, what follows from the processes, and what cannot be
// known. Guards invariant 11 (what cannot be measured is never idle) and 12 (no use of others counts).
func TestUseOfDevices(t *testing.T) {
	pods := func(list ...types.UID) []types.UID { return list }
	unlisted := newMIGDevice(gpmSource, 40, nil, "a")
	unlisted.ProcessesUnknown = true
	for name, tc := range map[string]struct {
		device      Device
		least, most int
		known       bool
	}{
		"a process":                              {newGPU("GPU-1", map[types.UID]int{"a": 40, "b": 30}), 40, 40, true},
		"a process that does nothing":            {newGPU("GPU-1", map[types.UID]int{"a": 0, "b": 30}), 0, 0, true},
		"a pod without a process":                {newGPU("GPU-1", map[types.UID]int{"b": 30}, "a"), 0, 0, true},
		"a device alone":                         {newMIGDevice(gpmSource, 40, pods("a", "a"), "a"), 40, 40, true},
		"a shared device":                        {newMIGDevice(gpmSource, 40, pods("a", "b"), "a", "b"), 0, 40, true},
		"a shared device that is idle":           {newMIGDevice(gpmSource, 0, pods("a", "b"), "a", "b"), 0, 0, true},
		"a shared device without a process":      {newMIGDevice(gpmSource, 40, pods("b"), "a", "b"), 0, 0, true},
		"a device with a process of no pod":      {newMIGDevice(gpmSource, 40, pods("a", ""), "a"), 0, 40, true},
		"a busy device without any process":      {newMIGDevice(gpmSource, 40, nil, "a"), 0, 40, true},
		"a device whose processes are unknown":   {unlisted, 0, 40, true},
		"a device without a measurement yet":     {newMIGDevice(gpmSource, nvml.UnknownPercent, pods("a"), "a"), 0, 0, false},
		"no measurement, and no process":         {newMIGDevice(gpmSource, nvml.UnknownPercent, nil, "a"), 0, 0, true},
		"a device that cannot be measured":       {newMIGDevice(unavailable, 0, pods("a"), "a"), 0, 0, false},
		"unmeasurable, and without a process":    {newMIGDevice(unavailable, 0, nil, "a"), 0, 0, false},
		"a device whose source is not known yet": {newMIGDevice("", 0, pods("a"), "a"), 0, 0, false},
	} {
		least, most, known := tc.device.podUse("a")
		if least != tc.least || most != tc.most || known != tc.known {
			t.Errorf("%s: %d to %d, %v; want %d to %d, %v", name, least, most, known, tc.least, tc.most, tc.known)
		}
	}
}

func TestThreshold(t *testing.T) {
	for name, tc := range map[string]struct {
		busy   int
		share  float64
		active bool
	}{
		"at the threshold":              {5, 1, true},
		"below it":                      {4, 1, false},
		"at the threshold of a half":    {3, 0.5, true},
		"below the threshold of a half": {2, 0.5, false},
	} {
		r := newRun()
		r.pods = map[types.UID]Pod{"a": {Share: tc.share, Threshold: DefaultThreshold}}
		r.sample(20*time.Minute, newGPU("GPU-1", map[types.UID]int{"a": tc.busy}))
		if got := r.idleFor("a"); (got == 0) != tc.active || !tc.active && got != 20*time.Minute-settlingPeriod {
			t.Errorf("%s: idle for %s", name, got)
		}
	}
	r := newRun() // A burst counts until it leaves the window.
	r.sample(10*time.Minute, newGPU("GPU-1", map[types.UID]int{"a": 0}))
	r.sample(20*time.Second, newGPU("GPU-1", map[types.UID]int{"a": 100}))
	r.sample(4*time.Minute, newGPU("GPU-1", map[types.UID]int{"a": 0}))
	if got := r.idleFor("a"); got != 0 {
		t.Errorf("four minutes after a burst of 20 s it is idle for %s", got)
	}
	r.sample(10*time.Minute, newGPU("GPU-1", map[types.UID]int{"a": 0}))
	if got := r.idleFor("a"); got < 9*time.Minute || got > 9*time.Minute+20*time.Second {
		t.Errorf("fourteen minutes after a burst it is idle for %s", got)
	}
	r.sample(10*time.Minute, newGPU("GPU-1", map[types.UID]int{"a": 0}))
	r.sample(5*time.Second, newGPU("GPU-1", map[types.UID]int{"a": 100}))
	r.sample(time.Minute, newGPU("GPU-1", map[types.UID]int{"a": 0}))
	if got := r.idleFor("a"); got < 20*time.Minute {
		t.Errorf("five seconds of use are below 5 %% of five minutes, and it is idle for %s", got)
	}
}

// Each pod has its own threshold and window. The last measurement stands for a short window in which there is none.
func TestOwnThreshold(t *testing.T) {
	r := newRun()
	r.pods = map[types.UID]Pod{
		"strict": {Share: 1, Threshold: Threshold{Percent: 20, Window: 30 * time.Second}},
		"lax":    {Share: 1, Threshold: Threshold{Percent: 1, Window: time.Hour}},
	}
	both := func(percent int) Device { return newGPU("GPU-1", map[types.UID]int{"strict": percent, "lax": percent}) }
	r.sample(10*time.Minute, both(19))
	if strict, lax := r.idleFor("strict"), r.idleFor("lax"); strict != 10*time.Minute-settlingPeriod || lax != 0 {
		t.Errorf("at 19 %% they are idle for %s and %s", strict, lax)
	}
	r.sample(time.Minute, both(20))
	r.sample(10*time.Minute, both(0))
	if strict, lax := r.idleFor("strict"), r.idleFor("lax"); strict < 9*time.Minute+55*time.Second || lax != 0 {
		t.Errorf("ten minutes after their use they are idle for %s and %s", strict, lax)
	}
	r.sample(time.Minute, both(100))
	unmeasured := both(0)
	unmeasured.PerProcess = false
	r.sample(2*time.Minute, unmeasured)
	if got := r.idleFor("strict"); got != 0 {
		t.Errorf("two minutes without a measurement after use it is idle for %s", got)
	}
	r.sample(2*time.Minute, unmeasured)
	if got := r.idleFor("strict"); got != -1 {
		t.Errorf("four minutes without a measurement after use it is idle for %s", got)
	}
	r.pods["strict"] = Pod{Share: 1, Threshold: DefaultThreshold} // as after an upgrade
	r.sample(time.Minute, both(0))
	if got := r.idleFor("strict"); got < time.Minute || got > 2*time.Minute { // a measurement stands for a minute
		t.Errorf("with another window it is idle for %s", got)
	}
}

// A pod of several devices is active if it uses one, and idle only if all are known to be idle.
func TestSeveralDevices(t *testing.T) {
	busy, idle := newGPU("GPU-1", map[types.UID]int{"a": 90}), newGPU("GPU-2", map[types.UID]int{"a": 0})
	unknown := newMIGDevice(unavailable, nvml.UnknownPercent, []types.UID{"a"}, "a")
	r := newRun()
	r.sample(10*time.Minute, busy, idle)
	if got := r.idleFor("a"); got != 0 {
		t.Errorf("with one busy GPU it is idle for %s", got)
	}
	if use := r.last.Pods["a"]; *use.MemoryMiB != 2000 || len(use.Devices) != 2 || *use.Devices[0].Busy != 90 || *use.Devices[1].Busy != 0 {
		t.Errorf("it has %+v", use)
	}
	r.sample(time.Minute, busy, unknown)
	if got := r.idleFor("a"); got != 0 {
		t.Errorf("with one busy and one unknown GPU it is idle for %s", got)
	}
	r.sample(10*time.Minute, idle, unknown)
	if got := r.idleFor("a"); got != -1 {
		t.Errorf("with one idle and one unknown GPU it is idle for %s", got)
	}
	r.sample(time.Second, idle)
	if got := r.idleFor("a"); got != 0 {
		t.Errorf("after ten minutes in which it may have used a GPU it is idle for %s", got)
	}
}

// Memory that the driver does not report is unknown, never 0.
func TestMemory(t *testing.T) {
	r := newRun()
	d := newGPU("GPU-1", map[types.UID]int{"a": 1, "b": 1}, "c")
	d.Processes = append(d.Processes, Process{Pod: "a", MemoryMiB: nvml.UnknownMiB})
	r.sample(time.Second, d)
	if a, b, c := r.last.Pods["a"], r.last.Pods["b"], r.last.Pods["c"]; a.MemoryMiB != nil || *b.MemoryMiB != 1000 || *c.MemoryMiB != 0 {
		t.Errorf("%+v, %+v, %+v", a, b, c)
	}
	d.ProcessesUnknown = true
	r.sample(time.Second, d)
	if c := r.last.Pods["c"]; c.MemoryMiB != nil {
		t.Errorf("%+v", c)
	}
}

// A new agent continues from what the last one published. After more than three minutes without samples a
// pod may have used its GPUs. Guards invariant 5: no idle time counts that was not measured.
func TestRestore(t *testing.T) {
	lastActive := began.Add(-time.Hour)
	for name, tc := range map[string]struct {
		sampledAt time.Time
		want      time.Duration
	}{
		"a short restart": {began.Add(-2 * time.Minute), time.Hour + time.Second},
		"a long one":      {began.Add(-4 * time.Minute), 0},
	} {
		r := newRun()
		r.tracker.Restore([]v1alpha1.PodUsage{
			{PodReference: v1alpha1.PodReference{UID: "a"}, LastActive: &metav1.Time{Time: lastActive}},
			{PodReference: v1alpha1.PodReference{UID: "unknown"}},
		}, tc.sampledAt)
		r.sample(time.Second, newGPU("GPU-1", map[types.UID]int{"a": 0, "unknown": 0, "new": 0}))
		if got := r.idleFor("a"); got != tc.want {
			t.Errorf("%s: idle for %s, want %s", name, got, tc.want)
		}
		if r.idleFor("unknown") != 0 || r.idleFor("new") != 0 {
			t.Errorf("%s: idle for %s and %s", name, r.idleFor("unknown"), r.idleFor("new"))
		}
	}
}

// A measurement that stays away makes the use unknown after three minutes, not zero.
func TestMissingMeasurements(t *testing.T) {
	r := newRun()
	r.sample(10*time.Minute, newMIGDevice(gpmSource, 80, []types.UID{"a"}, "a"))
	none := newMIGDevice(gpmSource, nvml.UnknownPercent, []types.UID{"a"}, "a")
	r.sample(3*time.Minute, none)
	if got := r.idleFor("a"); got != 0 {
		t.Errorf("its last measurements show use, and it is idle for %s", got)
	}
	r.sample(3*time.Minute, none)
	if got := r.idleFor("a"); got != -1 {
		t.Errorf("without measurements it is idle for %s", got)
	}
}

// In any history of known and unknown measurements the last use never goes back and is never in the future,
// and a pod whose use was measured for long enough to count is never idle soon after.
func TestTrackerProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, before, lastUsed := newRun(), began, began
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			d := newMIGDevice(gpmSource, rapid.SampledFrom([]int{nvml.UnknownPercent, 0, 0, 2, 50, 100}).Draw(t, "busy"), []types.UID{"a"}, "a")
			if rapid.Bool().Draw(t, "shared") {
				d.Processes = append(d.Processes, Process{Pod: "b", MemoryMiB: 1})
			}
			if rapid.IntRange(0, 5).Draw(t, "source") == 0 {
				d.Source = unavailable
			}
			seconds := rapid.IntRange(1, 300).Draw(t, "seconds")
			r.sample(time.Duration(seconds)*time.Second, d)
			if least, _, known := d.podUse("a"); known && least*seconds >= 1600 { // 5 % of 5 minutes are 1500
				lastUsed = r.now
			}
			last := r.last.Pods["a"].LastActive
			if last == nil {
				continue
			}
			if last.Before(before) || last.After(r.now) {
				t.Fatalf("at %s the last use was %s, and %s before", r.now, last, before)
			}
			if last.Before(lastUsed.Add(-time.Minute)) && r.now.Sub(lastUsed) < 4*time.Minute {
				t.Fatalf("at %s it was used at %s, and last active at %s", r.now, lastUsed, last)
			}
			before = *last
		}
	})
}
