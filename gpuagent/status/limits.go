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

// The limits of the schema, in characters and items. A status that breaks one of them
// is refused as a whole, and then nothing of the node is known: not even what is wrong.
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
	maxDevices          = 64
)

var (
	gpuUUIDPattern = regexp.MustCompile(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	profilePattern = regexp.MustCompile(`^[1-8]g[.][0-9]{1,4}gb([+][a-z]+([.][a-z]+)?|-me)?$`)
)

// validGPUs are the GPUs as the schema allows them. One that does not say its UUID any more
// is known by its place among the former ones, if it was: it must not go on being
// reported as it was when it was well.
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
	var kept []v1alpha1.ObservedInstance
	for _, it := range gpu.Instances {
		taken := func(other v1alpha1.ObservedInstance) bool { return other.Start == it.Start }
		if !profilePattern.MatchString(string(it.Profile)) || it.Start < 0 || it.Start > lastSlice || len(kept) == maxInstances || stdslices.ContainsFunc(kept, taken) {
			// Nothing may be planned where something lies that nobody sees.
			gpu.Health = v1alpha1.GPUUnhealthy
			gpu.Message = fmt.Sprintf("it has an instance that cannot be reported: %.40q at %d", it.Profile, it.Start)
			continue
		}
		it.Size = min(max(0, it.Size), maxInstances)
		it.UUID, it.Message = truncateText(it.UUID, maxUUID), truncateText(it.Message, maxMessage)
		kept = append(kept, it)
	}
	gpu.Instances = kept
	gpu.Message = truncateText(gpu.Message, maxMessage)
}

// mergePodUses are the pods by identity, as many as there may be, with what is not ours to say
// left as it was.
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

// truncateText is the text, or as much of it as there may be, with a mark. What is no text would be
// stored as another, and differ from it for ever.
func truncateText(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}

// formatSlices are a node's instances in a line, how many of each profile are in use of how
// many there are, the smallest first: "1g.5gb 3/8, 3g.20gb 2/2".
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
