// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	stdslices "slices"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// The limits of the schema, in characters and items. The API server rejects a status that exceeds
// one of them as a whole.
const (
	maxVersion          = 64
	maxModel            = 128
	maxUUID             = 80
	maxMessage          = 1024
	maxSlices           = 512
	maxConditionMessage = 32768
	maxGPUs             = 16
	maxProfiles         = 32
	maxInstances        = 8
	lastSlice           = 7
	maxPods             = 512
	maxFindings         = 512
	maxDevices          = 64
	maxOtherProcesses   = 16
)

var (
	gpuUUIDPattern = regexp.MustCompile(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	profilePattern = regexp.MustCompile(`^[1-8]g[.][0-9]{1,4}gb([+][a-z]+([.][a-z]+)?|-me)?$`)
)

// validGPUs returns the GPUs within the schema's limits. A GPU without a UUID gets that of the
// former GPU with its index, so that a lost GPU is not reported as healthy any longer.
func validGPUs(gpus, former []v1alpha1.ObservedGPU) []v1alpha1.ObservedGPU {
	list := make([]v1alpha1.ObservedGPU, 0, len(gpus))
	has := func(uuid v1alpha1.GPUUUID) func(v1alpha1.ObservedGPU) bool {
		return func(other v1alpha1.ObservedGPU) bool { return other.UUID == uuid }
	}
	for i := range gpus {
		gpu := gpus[i].DeepCopy()
		if !gpuUUIDPattern.MatchString(string(gpu.UUID)) {
			at := stdslices.IndexFunc(former, func(f v1alpha1.ObservedGPU) bool { return f.Index == gpu.Index })
			if at < 0 || stdslices.ContainsFunc(gpus, has(former[at].UUID)) {
				continue
			}
			gpu.UUID = former[at].UUID
		}
		if stdslices.ContainsFunc(list, has(gpu.UUID)) || len(list) == maxGPUs {
			continue
		}
		truncateGPU(gpu)
		list = append(list, *gpu)
	}
	return list
}

func truncateGPU(gpu *v1alpha1.ObservedGPU) {
	gpu.Index, gpu.MemoryMiB = max(0, gpu.Index), max(0, gpu.MemoryMiB)
	gpu.Model = truncateText(gpu.Model, maxModel)
	gpu.MIGProfiles = stdslices.DeleteFunc(gpu.MIGProfiles, func(p v1alpha1.MIGProfile) bool { return !profilePattern.MatchString(string(p)) })
	gpu.MIGProfiles = gpu.MIGProfiles[:min(len(gpu.MIGProfiles), maxProfiles)]
	gpu.MIGPlacements = gpu.MIGPlacements[:min(len(gpu.MIGPlacements), maxProfiles)]
	var kept []v1alpha1.ObservedInstance
	for _, it := range gpu.Instances {
		taken := func(other v1alpha1.ObservedInstance) bool { return other.Start == it.Start }
		if !profilePattern.MatchString(string(it.Profile)) || it.Start < 0 || it.Start > lastSlice || len(kept) == maxInstances ||
			stdslices.ContainsFunc(kept, taken) {
			// The planner must not plan on a GPU with an unreported instance.
			gpu.Health = v1alpha1.GPUUnhealthy
			gpu.Message = fmt.Sprintf("it has an instance that the GPUNode cannot report: %.40q at %d", it.Profile, it.Start)
			continue
		}
		it.Size = min(max(0, it.Size), maxInstances)
		it.UUID, it.Message = truncateText(it.UUID, maxUUID), truncateText(it.Message, maxMessage)
		kept = append(kept, it)
	}
	gpu.Instances = kept
	gpu.Message = truncateText(gpu.Message, maxMessage)
}

// mergePodUses returns the pods by UID, at most maxPods, and keeps the fields of other writers.
func mergePodUses(former, pods []v1alpha1.PodUsage) []v1alpha1.PodUsage {
	var list []v1alpha1.PodUsage
	for i := range pods {
		use := pods[i]
		if at := stdslices.IndexFunc(former, func(f v1alpha1.PodUsage) bool { return f.UID == use.UID }); at >= 0 {
			devices := use.Devices
			use = *former[at].DeepCopy()
			use.Devices = devices
		}
		use.Devices = use.Devices[:min(len(use.Devices), maxDevices)]
		list = append(list, use)
	}
	stdslices.SortFunc(list, func(a, b v1alpha1.PodUsage) int { return strings.Compare(string(a.UID), string(b.UID)) })
	list = stdslices.CompactFunc(list, func(a, b v1alpha1.PodUsage) bool { return a.UID == b.UID })
	return list[:min(len(list), maxPods)]
}

// truncateText shortens a text to most characters. It replaces invalid UTF-8: the API server would
// store another text, and the status would differ forever.
func truncateText(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}

// formatSlices returns the node's instances in a line, used and total by profile, the smallest
// first: "1g.5gb 3/8, 3g.20gb 2/2".
func formatSlices(gpus []v1alpha1.ObservedGPU) string {
	type count struct{ used, all, size int }
	counts := map[v1alpha1.MIGProfile]count{}
	for i := range gpus {
		for _, instance := range gpus[i].Instances {
			c := counts[instance.Profile]
			c.all++
			c.size = max(c.size, int(instance.Size))
			if instance.State == v1alpha1.InstanceActive || instance.State == v1alpha1.InstanceReclaiming {
				c.used++
			}
			counts[instance.Profile] = c
		}
	}
	names := stdslices.SortedFunc(maps.Keys(counts), func(a, b v1alpha1.MIGProfile) int {
		return cmp.Or(cmp.Compare(counts[a].size, counts[b].size), cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d/%d", name, counts[name].used, counts[name].all))
	}
	return strings.Join(parts, ", ")
}
