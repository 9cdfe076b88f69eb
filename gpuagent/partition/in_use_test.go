// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"strings"
	"testing"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/nvml/simulator"
)

// A program that is not among the driver's processes may hold a GPU for a while after its pod has ended, as
// DCGM does. The change waits for 30 seconds, has DCGM reloaded once, and then names the holders.
func TestDriverReportsGPUInUse(t *testing.T) {
	const holder = "process nvidia-persistenced (812)"
	for name, tt := range map[string]struct {
		// releasedAfter is when the program closes the GPU, reloading reports whether the reload makes it do so.
		releasedAfter time.Duration
		reloading     bool
		wantState     State
		wantReloads   int
	}{
		"until a client has ended":  {releasedAfter: 3 * time.Second, wantState: Applied},
		"until a late client ended": {releasedAfter: 25 * time.Second, wantState: Applied, wantReloads: 1},
		"until DCGM was reloaded":   {releasedAfter: time.Hour, reloading: true, wantState: Applied, wantReloads: 1},
		"for ever":                  {releasedAfter: time.Hour, wantState: Reclaiming, wantReloads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestNode(t, simulator.GPU{Model: "A30"})
			gpu := w.uuid(0)
			requireNoError(t, w.sim.Hold(gpu, true))
			var waited time.Duration
			w.engine.Sleep = func(_ context.Context, d time.Duration) {
				if waited += d; waited >= tt.releasedAfter {
					requireNoError(t, w.sim.Hold(gpu, false))
				}
			}
			reloads := 0
			w.engine.ReloadMonitoring = func() {
				if reloads++; tt.reloading {
					requireNoError(t, w.sim.Hold(gpu, false))
				}
			}
			w.engine.OpenBy = func(_ context.Context, of string) string {
				if of != gpu {
					t.Errorf("the holders of %s", of)
				}
				return holder
			}
			want := newDesiredGPU(gpu, placementAt("2g.12gb", 0))
			want.MayReset = true
			r := w.apply(want).Results[0]
			if r.State != tt.wantState || reloads != tt.wantReloads {
				t.Errorf("%+v after %s and %d reloads", r, waited, reloads)
			}
			if tt.wantState == Reclaiming && (waited < 30*time.Second || waited > time.Minute || !strings.Contains(r.Message, holder)) {
				t.Errorf("after %s: %s", waited, r.Message)
			}
		})
	}
}

// A process that the driver reports on the GPU ends the change at once and is named, too.
func TestProcessOnGPUIsNamed(t *testing.T) {
	w := newTestNode(t, simulator.GPU{Model: "A30"})
	gpu := w.uuid(0)
	requireNoError(t, w.sim.Attach(7, gpu, 1, 1))
	w.engine.OpenBy = func(context.Context, string) string { return "process nv-hostengine (7) of the host" }
	want := newDesiredGPU(gpu, placementAt("2g.12gb", 0))
	want.MayReset = true
	if r := w.apply(want).Results[0]; r.State != Reclaiming || !strings.Contains(r.Message, "nv-hostengine") {
		t.Errorf("%+v", r)
	}
}

// An administrator who ended the named program need not wait for minutes, and the named processes are those of
// now, also while no planner begins the change again. A GPU that was in use for the whole wait costs one call
// then: it neither holds up the other GPUs again, nor is dcgm-exporter reloaded without end. Guards invariant 11
// of the design.
func TestGPUThatWasInUseIsTriedAgain(t *testing.T) {
	for model, profile := range map[string]v1alpha1.MIGProfile{"A30": "2g.12gb", "H100-80GB": "2g.20gb"} {
		t.Run(model, func(t *testing.T) {
			w := newTestNode(t, simulator.GPU{Model: model})
			gpu := w.uuid(0)
			var waited time.Duration
			w.engine.Sleep = func(_ context.Context, d time.Duration) { waited += d }
			reloads, named := 0, 0
			w.engine.ReloadMonitoring = func() { reloads++ }
			w.engine.OpenBy = func(context.Context, string) string { named++; return "" }
			change, former := newDesiredGPU(gpu, placementAt(profile, 0)), v1alpha1.DesiredGPU{UUID: v1alpha1.GPUUUID(gpu)}
			change.MayReset = true
			for _, step := range []struct {
				when           string
				after          time.Duration
				spec           v1alpha1.DesiredGPU
				held           bool
				want           State
				reloads, named int
				waits          bool
			}{
				{"first", 0, change, true, Reclaiming, 1, 1, true},
				{"at once", retryAfter[Reclaiming], change, true, Reclaiming, 1, 1, false},
				{"later", inUseBackoff, change, true, Reclaiming, 1, 2, false},
				{"restored", 0, former, true, Applied, 1, 2, false},
				{"begun again", time.Minute, change, true, Reclaiming, 2, 3, true},
				{"restored again", 0, former, true, Applied, 2, 3, false},
				{"released", time.Minute, change, false, Applied, 2, 3, false},
			} {
				w.now, waited = w.now.Add(step.after), 0
				requireNoError(t, w.sim.Hold(gpu, step.held))
				r := w.apply(step.spec).Results[0]
				if r.State != step.want || reloads != step.reloads || named != step.named || waited > 30*time.Second != step.waits {
					t.Errorf("%s: %+v after %d reloads, named %d times, waited %s", step.when, r, reloads, named, waited)
				}
			}
		})
	}
}

// A pod that holds the GPU is the reason for a refusal, whether or not it has the GPU open.
func TestPodThatHoldsGPUIsTheReason(t *testing.T) {
	w := newTestNode(t, simulator.GPU{Model: "A30"})
	gpu := w.uuid(0)
	w.pods[gpu] = Holder{Pod: &v1alpha1.PodReference{Namespace: "ml", Name: "notebook"}}
	w.engine.OpenBy = func(context.Context, string) string { return "a kernel module may hold it" }
	want := newDesiredGPU(gpu, placementAt("2g.12gb", 0))
	want.MayReset = true
	if r := w.apply(want).Results[0]; r.State != Reclaiming || !strings.HasSuffix(r.Message, "pod ml/notebook") {
		t.Errorf("%+v", r)
	}
}
