// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

// The golden files are compared byte for byte.
func init() { golden.NormalizeCRLFToLF = false }

var (
	partitionedGPU = v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled, Pending: v1alpha1.MIGModeEnabled}
	wholeGPU       = v1alpha1.MIGMode{Current: v1alpha1.MIGModeDisabled, Pending: v1alpha1.MIGModeDisabled}
)

func newGPU(index int, change ...func(*GPU)) GPU {
	g := GPU{
		Index: index, UUID: "GPU-8f6e2a04", Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960, UsedMiB: ptr.To[int64](0),
		Health: v1alpha1.GPUHealthy, Mode: partitionedGPU, Slices: 8,
	}
	for _, c := range change {
		c(&g)
	}
	return g
}

func withInstances(instances ...Instance) func(*GPU) { return func(g *GPU) { g.Instances = instances } }

func newInstance(profile string, start, size int, pod string) Instance {
	i := Instance{Profile: v1alpha1.MIGProfile(profile), Start: start, Size: size, State: v1alpha1.InstanceIdle, Pod: pod}
	if pod != "" {
		i.State = v1alpha1.InstanceActive
	}
	return i
}

func trainingGPU() GPU {
	g := newGPU(0, withInstances(
		newInstance("3g.20gb", 0, 4, "h2/train-0"), newInstance("2g.10gb", 4, 2, ""), newInstance("1g.5gb", 6, 1, "h2/nb-1")))
	g.Instances[0].MemoryMiB, g.Instances[0].UsedMiB = 20096, 18432
	g.UsedMiB = ptr.To[int64](20800)
	return g
}

func eightGPUs() (list []GPU) {
	list = append(list, trainingGPU())
	for i := 1; i < 8; i++ {
		list = append(list, newGPU(i, withInstances(
			newInstance("1g.5gb", 0, 1, "h2-students/thesis-mueller-notebook-0"), newInstance("1g.5gb", 1, 1, ""),
			newInstance("1g.5gb+me", 2, 1, ""),
			newInstance("3g.20gb", 4, 4, ""))))
	}
	return list
}

func goldenNodes() map[string]Node {
	foreign := newInstance("1g.10gb+me", 0, 2, "")
	foreign.Foreign = true
	narrow := newInstance("1g.5gb+me", 2, 1, "")
	narrow.Foreign = true
	leaving := newInstance("2g.10gb", 4, 2, "h2/a-pod-with-a-long-name-0")
	leaving.State = v1alpha1.InstanceReclaiming
	broken := newInstance("1g.5gb", 6, 1, "")
	broken.State = v1alpha1.InstanceError
	busy := newInstance("1g.5gb", 3, 1, "")
	busy.State = v1alpha1.InstanceActive
	return map[string]Node{
		"one": {GPUs: []GPU{trainingGPU()}, Processes: []Process{
			{PID: 41234, Pod: "h2/train-0", GPU: 0, Device: "3g.20gb@0", MemoryMiB: ptr.To[int64](18432)},
			{PID: 5000017, Pod: "h2/nb-1", GPU: 0, Device: "1g.5gb@6"},
			{PID: 77, GPU: 0, Device: "whole", MemoryMiB: ptr.To[int64](12)},
			{PID: 79, GPU: 0, Device: "whole", Other: &v1alpha1.OtherProcess{Name: "python3.11", Kind: v1alpha1.OtherSlurm, Owner: "job 463"}},
			{PID: 80, GPU: 0, Device: "whole", Other: &v1alpha1.OtherProcess{Name: "glxgears", Kind: v1alpha1.OtherHost}},
			{PID: 78, Pod: strings.Repeat("long-name-", 9), GPU: 0, Device: "1g.10gb+me.all@6", MemoryMiB: ptr.To[int64](81000)},
		}},
		"eight": {GPUs: eightGPUs()},
		"lost": {GPUs: []GPU{trainingGPU(), {
			Index: 1, Health: v1alpha1.GPULost,
			Message: "NVML: the GPU is lost (15); look for Xid errors in the kernel's log (dmesg), and reboot the node when its pods have ended",
		}}},
		"foreign": {GPUs: []GPU{newGPU(0, withInstances(foreign, narrow, busy, leaving, broken))}},
		"whole": {GPUs: []GPU{
			newGPU(0, func(g *GPU) { g.Mode, g.Pods, g.Utilization = wholeGPU, []string{"h2/big-0"}, ptr.To(91) }),
			newGPU(1, func(g *GPU) { g.Mode, g.Pods = wholeGPU, []string{"h2/nb-1", "h2/nb-2"} }),
			newGPU(2, func(g *GPU) { g.Mode = wholeGPU }),
			newGPU(3, func(g *GPU) {
				g.Model, g.Slices, g.Mode = "Tesla T4", 0, v1alpha1.MIGMode{Current: v1alpha1.MIGModeNotSupported}
			}),
			newGPU(4, func(g *GPU) {
				g.Mode.Current, g.Mode.Pending, g.Message = v1alpha1.MIGModeDisabled, v1alpha1.MIGModeEnabled, "the GPU has to be reset"
			}),
		}},
		"a30": {GPUs: []GPU{newGPU(0, withInstances(newInstance("2g.12gb", 0, 2, "h2/train-0"), newInstance("1g.6gb", 3, 1, "")), func(g *GPU) {
			g.Model, g.Slices, g.MemoryMiB = "NVIDIA A30", 4, 24576
		})}},
		"trouble": {Problems: []string{"LayoutApplied is False (InUse): GPU-8f6e2a04: 3g.20gb@0 has to be destroyed and is in use: pod h2/train-0 (process 41234)"}},
		"hostile": {
			Name: "n\x1b[31m", Problems: []string{"\x1b]0;owned\x07 \u202e"}, GPUs: []GPU{newGPU(0, withInstances(
				newInstance("3g.20gb", 0, 4, "h2/\x1b[2J"), newInstance("4g.20gb", 2, 4, ""), newInstance("7g.40gb", 6, 8, ""),
				newInstance("1g.5gb", -1, 1, "")))},
			Processes: []Process{
				{PID: 1, Pod: "\x1b[0m", Device: "\n"},
				{PID: 2, Device: "whole", Other: &v1alpha1.OtherProcess{Name: "\x1b[0m\n" + strings.Repeat("x", 64), Owner: "\u202e"}},
			},
		},
		"empty": {},
	}
}

func TestRender(t *testing.T) {
	for name, node := range goldenNodes() {
		t.Run(name, func(t *testing.T) {
			if node.Name == "" {
				node.Name = "dgx-01"
			}
			node.DriverVersion, node.ObservedAt = "550.54.15", time.Date(2026, 11, 21, 23, 5, 0, 0, time.UTC)
			got := Render(node, false)
			golden.Assert(t, got, name+".txt")
			for line := range strings.Lines(got) {
				if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > maxColumns {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			if strings.ContainsAny(got, "\x1b\x07\u202e") {
				t.Errorf("a terminal would act upon it: %q", got)
			}
			colored := Render(node, true)
			if diff := cmp.Diff(got, escapeSequences.ReplaceAllString(colored, "")); diff != "" {
				t.Errorf("the colors change more than colors:\n%s", diff)
			}
		})
	}
}

var escapeSequences = regexp.MustCompile("\x1b\\[[0-9;]*m")
