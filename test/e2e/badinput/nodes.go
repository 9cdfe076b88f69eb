// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import (
	"fmt"
	"strings"

	"sluice.dev/api/workload"
)

// schedulerSharing lists the sharing modes that each scheduler supports.
var schedulerSharing = map[string][]string{
	"kube-scheduler": {"None", "MIG", "MPS", "TimeSlicing"},
	"yunikorn":       {"None", "MIG", "MPS", "TimeSlicing"},
	"kueue":          {"None", "MIG", "MPS", "TimeSlicing"},
	"kai":            {"None", "KAI", "MIG"},
	"volcano":        {"None", "HAMi", "MIG"},
	"koordinator":    {"None", "HAMi", "MIG"},
	"hami":           {"None", "HAMi", "MIG"},
}

var sharingModes = []string{"None", "MIG", "MPS", "TimeSlicing", "KAI", "HAMi"}

func nodePoolTable() table {
	k := table{
		kind: "NodePool",
		allowed: []edit{
			{name: "only required fields", patch: `{spec: {sharing: null, compute: null, tolerations: null, mig: null}}`},
			{name: "the longest name", patch: `{metadata: {name: ` + strings.Repeat("a", 46) + `}}`},
			{name: "MIG planned from demand", patch: `{spec: {mig: {planning: Dynamic, layout: null}}}`},
			{name: "a minimum runtime", patch: `{spec: {preemption: {minimumRuntime: 1h30m}}}`},
			{name: "preemption without settings", patch: `{spec: {preemption: {}}}`},
			{name: "MIG without settings", patch: `{spec: {mig: null}}`},
			{name: "strict compute under MPS", patch: `{spec: {sharing: MPS, compute: Strict, mig: null}}`},
			{name: "strict compute under HAMi", patch: `{spec: {scheduler: hami, sharing: HAMi, compute: Strict, mig: null}}`},
			{name: "burst of time slices", patch: `{spec: {sharing: TimeSlicing, burst: Allow, mig: null}}`},
			{name: "burst of KAI's shares", patch: `{spec: {scheduler: kai, sharing: KAI, burst: Allow, mig: null}}`},
			{name: "no burst of slices", patch: `{spec: {burst: Refuse}}`},
			{name: "no reserve of the driver", patch: `{spec: {driverReservePercent: 0}}`},
			{name: "the largest reserve of the driver", patch: `{spec: {driverReservePercent: 25}}`},
			{name: "shares of a node", patch: `{spec: {resourceShares: {nonPreemptible: "0.95", preemptible: Unlimited}}}`},
			{name: "the largest share of a node", patch: `{spec: {resourceShares: {preemptible: "999.999"}}}`},
			{name: "a label of blocks of nodes", patch: `{spec: {topologyKeys: [example.com/block]}}`},
			{name: "GPUs of other names", patch: newNamedGPUs(`{name: a/b, gpus: 500m}, {name: b.c/D_1.x, gpus: "2"}, {name: a/c, gpus: "0.001"}`)},
			{name: "a GPU name in Kueue", patch: `{spec: {scheduler: kueue, sharing: None, mig: null, resources: [{name: a/b, gpus: 16}]}}`},
			{name: "no limits of the driver", patch: `{spec: {driverMemoryLimits: Never}}`},
			{name: "pods without GPUs refused", patch: `{spec: {cpuPods: Refuse}}`},
			{name: "pods without GPUs allowed, with two labels", patch: `{spec: {cpuPods: Allow, nodeSelector: {a: b, c: d}}}`},
			{name: "a toleration of all taints", patch: `{spec: {tolerations: [{operator: Exists}]}}`},
			{name: "another NVIDIA label", patch: `{spec: {nodeSelector: {nvidia.com/gpu.present: "true"}}}`},
		},
		rejected: []edit{
			{"a name too long for a resource", `{metadata: {name: ` + strings.Repeat("a", 47) + `}}`, "metadata.name", "at most 46 characters"},
			{"a name with a dot", `{metadata: {name: dgx.h100}}`, "metadata.name", "DNS label"},
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"an unknown field", `{spec: {nodeselector: {a: b}}}`, "spec.nodeselector", "unknown field"},
			{"no selector", `{spec: {nodeSelector: null}}`, "spec.nodeSelector", "Required value"},
			{"an empty selector", `{spec: {nodeSelector: {sluice.dev/node-pool: null}}}`, "spec.nodeSelector", "at least 1 properties"},
			{"a selector with too many labels", `{spec: {nodeSelector: {` + repeatItems(17, "l%[1]d: x") + `}}}`, "spec.nodeSelector", "at most 16"},
			{"a label value that is not a string", `{spec: {nodeSelector: {pool: true}}}`, "spec.nodeSelector.pool", "must be of type string"},
			{"no scheduler", `{spec: {scheduler: null}}`, "spec.scheduler", "Required value"},
			{"an unknown scheduler", `{spec: {scheduler: slurm}}`, "spec.scheduler", `"kube-scheduler", "kueue", "kai", "volcano", "yunikorn", "koordinator", "hami"`},
			{"an unknown sharing mode", `{spec: {sharing: mig}}`, "spec.sharing", `"None", "MIG", "MPS", "TimeSlicing", "KAI", "HAMi"`},
			{"preemption that is not an object", `{spec: {preemption: 10m}}`, "spec.preemption", "must be of type object"},
			{"an unknown setting of preemption", `{spec: {preemption: {maximumRuntime: 1h}}}`, "spec.preemption.maximumRuntime", "unknown field"},
			{"a minimum runtime that is no duration", `{spec: {preemption: {minimumRuntime: soon}}}`, "spec.preemption.minimumRuntime", duration},
			{"a negative minimum runtime", `{spec: {preemption: {minimumRuntime: -1h}}}`, "spec.preemption.minimumRuntime", duration},
			{"a minimum runtime as a number", `{spec: {preemption: {minimumRuntime: 600}}}`, "spec.preemption.minimumRuntime", "must be of type string"},
			{"GPUs of other names with MIG", `{spec: {resources: [{name: a/b, gpus: 1}]}}`, "spec.resources", "needs sharing None"},
			{
				"GPUs of other names with KAI", `{spec: {scheduler: kai, sharing: None, mig: null, resources: [{name: a/b, gpus: 1}]}}`,
				"spec.resources", "needs sharing None, and kube-scheduler",
			},
			{"an unknown rule for pods without GPUs", `{spec: {cpuPods: Deny}}`, "spec.cpuPods", `"Allow", "Refuse"`},
			{"pods without GPUs refused, with two labels", `{spec: {cpuPods: Refuse, nodeSelector: {a: b, c: d}}}`, "spec.cpuPods", "a single label"},
			{"an unknown compute mode", `{spec: {compute: Loose}}`, "spec.compute", `"Fair", "Strict"`},
			{"strict compute under MIG", `{spec: {compute: Strict}}`, "spec.compute", "Strict requires sharing MPS or HAMi; with MIG it must be Fair"},
			{"strict compute for whole GPUs", `{spec: {sharing: None, mig: null, compute: Strict}}`, "spec.compute", "Strict requires sharing MPS or HAMi"},
			{"an unknown rule for burst", `{spec: {burst: Always}}`, "spec.burst", `"Allow", "Refuse"`},
			{"burst of slices", `{spec: {burst: Allow}}`, "spec.burst", "Allow requires sharing TimeSlicing or KAI, under which a share has no fixed size; with MIG it must be Refuse"},
			{"burst under MPS", `{spec: {sharing: MPS, burst: Allow, mig: null}}`, "spec.burst", "with MPS it must be Refuse"},
			{"burst of whole GPUs", `{spec: {sharing: null, burst: Allow, mig: null}}`, "spec.burst", "with None it must be Refuse"},
			{"a negative reserve of the driver", `{spec: {driverReservePercent: -1}}`, "spec.driverReservePercent", "greater than or equal to 0"},
			{"too large a reserve of the driver", `{spec: {driverReservePercent: 26}}`, "spec.driverReservePercent", "less than or equal to 25"},
			{"half a percent of reserve", `{spec: {driverReservePercent: 0.5}}`, "spec.driverReservePercent", "must be of type integer"},
			{"a share that is no object", `{spec: {resourceShares: "2"}}`, "spec.resourceShares", "must be of type object"},
			{
				"a share of nothing", `{spec: {resourceShares: {nonPreemptible: "0.000"}}}`,
				"spec.resourceShares.nonPreemptible", "must be a number above 0 and below 1000",
			},
			{
				"a negative share", `{spec: {resourceShares: {preemptible: "-1"}}}`,
				"spec.resourceShares.preemptible", "such as \"1.5\", or Unlimited",
			},
			{
				"a share in ten-thousandths", `{spec: {resourceShares: {preemptible: "1.0001"}}}`,
				"spec.resourceShares.preemptible", "with at most three decimals",
			},
			{"a share as a number", `{spec: {resourceShares: {preemptible: 1.5}}}`, "spec.resourceShares.preemptible", "must be of type string"},
			{
				"a very long share", `{spec: {resourceShares: {preemptible: "1000000000"}}}`,
				"spec.resourceShares.preemptible", "may not be more than 9",
			},
			{"a topology key with a space", `{spec: {topologyKeys: ["a b"]}}`, "spec.topologyKeys[0]", "should match"},
			{"an unknown rule for limits of the driver", `{spec: {driverMemoryLimits: Always}}`, "spec.driverMemoryLimits", `"Auto", "Never"`},
			{"tolerations that are not a list", `{spec: {tolerations: all}}`, "spec.tolerations", "must be of type array"},
			{"too many tolerations", `{spec: {tolerations: [` + repeatItems(17, "{key: k%d, operator: Exists}") + `]}}`, "spec.tolerations", "at most 16 items"},
			{"a toleration with an unknown operator", `{spec: {tolerations: [{key: a, operator: In, value: b}]}}`, "spec.tolerations", "operator must be Exists or Equal"},
			{"a toleration with an unknown effect", `{spec: {tolerations: [{key: a, operator: Exists, effect: Never}]}}`, "spec.tolerations", "NoSchedule, PreferNoSchedule or NoExecute"},
			{"a toleration with Exists and a value", `{spec: {tolerations: [{key: a, operator: Exists, value: b}]}}`, "spec.tolerations", "operator Exists takes no value"},
			{"a toleration without a key", `{spec: {tolerations: [{operator: Equal, value: b}]}}`, "spec.tolerations", "needs a key"},
			{"mig under MPS", `{spec: {sharing: MPS}}`, "spec.mig", "for sharing MIG only; it is MPS here"},
			{"mig without sharing", `{spec: {sharing: null}}`, "spec.mig", "for sharing MIG only; it is None here"},
			{"an unknown planning mode", `{spec: {mig: {planning: Sometimes}}}`, "spec.mig.planning", `"Dynamic", "Static"`},
			{"an unknown reset mode", `{spec: {mig: {resets: Always}}}`, "spec.mig.resets", `"Never", "WhenIdle", "Drain"`},
			{"a pause that is no boolean", `{spec: {mig: {pause: sometimes}}}`, "spec.mig.pause", "must be of type boolean"},
			{"no change of a node", `{spec: {mig: {maxChangesPerHour: 0}}}`, "spec.mig.maxChangesPerHour", "greater than or equal to 1"},
			{"too many changes of a node", `{spec: {mig: {maxChangesPerHour: 61}}}`, "spec.mig.maxChangesPerHour", "less than or equal to 60"},
			{"static planning without a layout", `{spec: {mig: {layout: null}}}`, "spec.mig.layout", "required where planning is Static"},
			{"dynamic planning with a layout", `{spec: {mig: {planning: Dynamic}}}`, "spec.mig.layout", "planning Static only"},
			{"a layout without a planning mode", `{spec: {mig: {planning: null}}}`, "spec.mig.layout", "planning Static only"},
			{"a layout without profiles", newLayout(`{migEnabled: true}`), "spec.mig.layout[0].migDevices", "at least one profile"},
			{"profiles without MIG", newLayout(`{migEnabled: false, migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].migDevices", "left out where migEnabled is false"},
			{"a compute instance", newLayout(`{migDevices: {1c.3g.40gb: 1}}`), "spec.mig.layout[0].migDevices", "profiles of GPU instances, such as 3g.40gb"},
			{"a profile with an unknown size", newLayout(`{migDevices: {9g.40gb: 1}}`), "spec.mig.layout[0].migDevices", "profiles of GPU instances"},
			{"zero instances of a profile", newLayout(`{migDevices: {1g.10gb: 0}}`), "spec.mig.layout[0].migDevices", "from 1 to 8"},
			{"too many instances of a profile", newLayout(`{migDevices: {1g.10gb: 9}}`), "spec.mig.layout[0].migDevices", "from 1 to 8"},
			{"migEnabled that is not a boolean", newLayout(`{migEnabled: "yes", migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].migEnabled", "must be of type boolean"},
			{"an invalid GPU model", newLayout(`{deviceFilter: [H100], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].deviceFilter[0]", "should match"},
			{"a GPU model twice", newLayout(`{deviceFilter: ["0x233010DE", "0x233010DE"], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].deviceFilter[1]", "Duplicate value"},
			{"a negative GPU index", newLayout(`{devices: [-1], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].devices[0]", "greater than or equal to 0"},
			{"a GPU index above the maximum", newLayout(`{devices: [16], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].devices[0]", "less than or equal to 15"},
			{"too many GPUs", newLayout(`{devices: [` + repeatItems(17, "%d") + `], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].devices", "at most 16 items"},
			{"too many GPU models", newLayout(`{deviceFilter: [` + repeatItems(17, `"0x23%02d10DE"`) + `], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].deviceFilter", "at most 16 items"},
			{"too many profiles", newLayout(`{migDevices: {` + repeatItems(9, `1g.%dgb: 1`) + `}}`), "spec.mig.layout[0].migDevices", "at most 8"},
			{"too many layouts", newLayout(repeatItems(33, `{devices: [%d], migDevices: {1g.10gb: 1}}`)), "spec.mig.layout", "at most 32 items"},
			{"a GPU twice", newLayout(`{devices: [1, 1], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].devices[1]", "Duplicate value"},
		},
		mutable: []edit{
			{name: "another scheduler", patch: `{spec: {scheduler: kai}}`},
		},
		status: []edit{
			{"an invalid count", `{status: {gpus: eight}}`, "status.gpus", "must be of type integer"},
			{"too long a driver version", `{status: {driverVersion: "` + strings.Repeat("6", 65) + `"}}`, "status.driverVersion", "may not be more than 64"},
			{"a GPU model twice", `{status: {products: [{name: A, memoryMiB: 1}, {name: A, memoryMiB: 2}]}}`, "status.products[1]", "Duplicate value"},
			{"a GPU model with negative memory", `{status: {products: [{name: A, memoryMiB: -1}]}}`, "status.products[0].memoryMiB", "greater than or equal to 0"},
			{"an invalid profile", `{status: {products: [{name: A, memoryMiB: 1, migProfiles: [3g]}]}}`, "status.products[0].migProfiles[0]", "such as 3g.40gb"},
			{
				"an unlisted resource twice", `{status: {unlistedResources: [{name: a/b}, {name: a/b}]}}`,
				"status.unlistedResources[1]", "Duplicate value",
			},
			{
				"an unlisted resource since no time", `{status: {unlistedResources: [{name: a/b, goneSince: x}]}}`,
				"status.unlistedResources[0].goneSince", "date-time",
			},
			{"a condition twice", `{status: {conditions: [` + newCondition("Ready") + `, ` + newCondition("Ready") + `]}}`, "status.conditions[1]", "Duplicate value"},
		},
	}
	for _, e := range []edit{
		{"a GPU without a number", `{name: nvidia.com/a100}`, "[0].gpus", "Required value"},
		{"no GPUs for a resource", `{name: nvidia.com/a100, gpus: 0}`, "[0].gpus", "a whole number of GPUs from 1 to 16, or a part of one"},
		{"a negative number of GPUs", `{name: nvidia.com/a100, gpus: -1}`, "[0].gpus", "from 1 to 16"},
		{"too many GPUs for a resource", `{name: nvidia.com/a100, gpus: 17}`, "[0].gpus", "from 1 to 16"},
		{"one GPU and a half", `{name: nvidia.com/a100, gpus: "1.5"}`, "[0].gpus", "from 1 to 16"},
		{"less than a thousandth", `{name: nvidia.com/a100, gpus: 100u}`, "[0].gpus", "in steps of a thousandth"},
		{"GPUs that are no quantity", `{name: nvidia.com/a100, gpus: one}`, "[0].gpus", ""},
		{"a resource without a domain", `{name: a100, gpus: 1}`, "[0].name", "should match"},
		{"a pattern of resources", `{name: nvidia.com/*, gpus: 1}`, "[0].name", "should match"},
		{"a resource of no name", `{name: nvidia.com/, gpus: 1}`, "[0].name", "should match"},
		{"a long resource", `{name: ` + longText(120) + `/` + longText(20) + `, gpus: 1}`, "[0].name", "may not be more than 128"},
		{"a MIG profile as a GPU of its own name", `{name: nvidia.com/mig-1g.5gb, gpus: 125m}`, "[0].name", knownResource},
		{"Sluice's quota as a GPU", `{name: sluice.dev/gpu-milli, gpus: 1m}`, "[0].name", knownResource},
		{"a DeviceClass as a GPU", `{name: deviceclass.resource.kubernetes.io/gpu.nvidia.com, gpus: 1}`, "[0].name", knownResource},
		{"a GPU of its own name twice", `{name: nvidia.com/a100, gpus: 1}, {name: nvidia.com/a100, gpus: 2}`, "[1]", "Duplicate value"},
		{"too many GPUs of other names", repeatItems(9, `{name: nvidia.com/a%d, gpus: 1}`), "", "at most 8 items"},
	} {
		k.rejected = append(k.rejected, edit{e.name, newNamedGPUs(e.patch), "spec.resources" + e.field, e.wantMessage})
	}
	// The schema names what the code knows.
	for name := range workload.DefaultResourceUnits() {
		k.rejected = append(k.rejected, edit{
			"the known resource " + string(name), newNamedGPUs(`{name: ` + string(name) + `, gpus: 1}`), "spec.resources[0].name", knownResource,
		})
	}
	for _, key := range []string{"product", "count", "replicas", "memory", "sharing-strategy"} {
		k.rejected = append(k.rejected, edit{
			"the label nvidia.com/gpu." + key, `{spec: {nodeSelector: {nvidia.com/gpu.` + key + `: "1"}}}`,
			"spec.nodeSelector", "must not use a label that GPU feature discovery rewrites",
		})
	}
	for scheduler, supported := range schedulerSharing {
		for _, sharing := range sharingModes {
			e := edit{name: sharing + " on " + scheduler, patch: fmt.Sprintf(`{metadata: {labels: {pair: x}}, spec: {scheduler: %s, sharing: %s, mig: null}}`, scheduler, sharing)}
			if strings.Contains(strings.Join(supported, " ")+" ", sharing+" ") {
				k.allowed = append(k.allowed, e)
				continue
			}
			e.field = "spec.sharing"
			e.wantMessage = fmt.Sprintf("must be %s or %s where the scheduler is %s", strings.Join(supported[:len(supported)-1], ", "), supported[len(supported)-1], scheduler)
			k.rejected = append(k.rejected, e)
		}
	}
	return k
}

const knownResource = "must not be a resource that Sluice knows"

// newNamedGPUs is a pool of whole GPUs with resources.
func newNamedGPUs(entries string) string {
	return `{spec: {sharing: None, mig: null, resources: [` + entries + `]}}`
}

func newLayout(entry string) string {
	return `{spec: {mig: {layout: [` + entry + `]}}}`
}

const someGPU = "GPU-8f6e2a04-1c5b-4a5e-9d2f-3b7c6d5e4f30"

func newGPU(fields string) string { return `{spec: {gpus: [{` + fields + `}]}}` }

func newInstance(fields string) string {
	return newGPU(`uuid: ` + someGPU + `, migEnabled: true, instances: [` + fields + `]`)
}

func newObservedStatus(fields string) string {
	return `{status: {gpus: [{uuid: ` + someGPU + `, index: 0, ` + fields + `}]}}`
}

func gpuNodeTable() table {
	const profile = "a profile of GPU instances, such as 3g.40gb or 1g.10gb+me"
	return table{
		kind: "GPUNode",
		allowed: []edit{
			{name: "an empty spec", patch: `{spec: null}`},
			{name: "MIG without instances", patch: newGPU(`uuid: ` + someGPU + `, migEnabled: true`)},
			{name: "a full GPU", patch: newInstance(repeatItems(7, `{profile: 1g.10gb, start: %d}`))},
			{name: "profiles with attributes", patch: newInstance(`{profile: 1g.24gb+me.all, start: 0}, {profile: 1g.24gb-me, start: 1}, {profile: 1g.24gb+gfx, start: 2}`)},
		},
		rejected: []edit{
			{"an unknown field", `{spec: {pool: a}}`, "spec.pool", "unknown field"},
			{"a pool with a name that is too long", `{spec: {nodePool: ` + longText(47) + `}}`, "spec.nodePool", "may not be more than 46"},
			{"GPUs that are not a list", `{spec: {gpus: 8}}`, "spec.gpus", "must be of type array"},
			{"too many GPUs", `{spec: {gpus: [` + repeatItems(17, `{uuid: GPU-8f6e2a04-1c5b-4a5e-9d2f-3b7c6d5e4f%02d, migEnabled: true}`) + `]}}`, "spec.gpus", "at most 16 items"},
			{"a GPU twice", `{spec: {gpus: [{uuid: ` + someGPU + `, migEnabled: true}, {uuid: ` + someGPU + `, migEnabled: false}]}}`, "spec.gpus[1]", "Duplicate value"},
			{"a GPU without a UUID", newGPU(`migEnabled: true`), "spec.gpus[0].uuid", "Required value"},
			{"a GPU index instead of a UUID", newGPU(`uuid: "0", migEnabled: true`), "spec.gpus[0].uuid", "should match"},
			{"the UUID of a MIG device", newGPU(`uuid: MIG-8f6e2a04-1c5b-4a5e-9d2f-3b7c6d5e4f30, migEnabled: true`), "spec.gpus[0].uuid", "should match '^GPU-"},
			{"a GPU with a UUID that is too long", newGPU(`uuid: ` + someGPU + `00000, migEnabled: true`), "spec.gpus[0].uuid", "may not be more than 40"},
			{"a GPU without a MIG mode", newGPU(`uuid: ` + someGPU), "spec.gpus[0].migEnabled", "Required value"},
			{"a reset that is not a boolean", newGPU(`uuid: ` + someGPU + `, migEnabled: true, mayReset: "yes"`), "spec.gpus[0].mayReset", "must be of type boolean"},
			{"instances without MIG", newGPU(`uuid: ` + someGPU + `, migEnabled: false, instances: [{profile: 3g.40gb, start: 0}]`), "spec.gpus[0].instances", "must be left out where migEnabled is false"},
			{"two instances at one position", newInstance(`{profile: 1g.10gb, start: 0}, {profile: 2g.20gb, start: 0}`), "spec.gpus[0].instances[1]", "Duplicate value"},
			{"an instance without a profile", newInstance(`{start: 0}`), "spec.gpus[0].instances[0].profile", "Required value"},
			{"an instance with an invalid profile", newInstance(`{profile: half, start: 0}`), "spec.gpus[0].instances[0].profile", profile},
			{"an instance with a resource name as its profile", newInstance(`{profile: mig-3g.40gb, start: 0}`), "spec.gpus[0].instances[0].profile", profile},
			{"an instance with a profile that is too long", newInstance(`{profile: 1g.10gb+` + longText(20) + `, start: 0}`), "spec.gpus[0].instances[0].profile", "may not be more than 24"},
			{"too many instances", newInstance(repeatItems(9, `{profile: 1g.10gb, start: %d}`)), "spec.gpus[0].instances", "at most 8 items"},
			{"a compute instance", newInstance(`{profile: 1c.3g.40gb, start: 0}`), "spec.gpus[0].instances[0].profile", "compute instances (1c.3g.40gb) are not offered"},
			{"an instance without a position", newInstance(`{profile: 3g.40gb}`), "spec.gpus[0].instances[0].start", "Required value"},
			{"an instance beyond the GPU", newInstance(`{profile: 1g.10gb, start: 8}`), "spec.gpus[0].instances[0].start", "less than or equal to 7"},
			{"an instance at a negative position", newInstance(`{profile: 1g.10gb, start: -1}`), "spec.gpus[0].instances[0].start", "greater than or equal to 0"},
		},
		status: []edit{
			{"an unknown utilization source", newObservedStatus(`utilizationSource: Guess`), "status.gpus[0].utilizationSource", `"NVML", "GPM", "DCGM", "Unavailable"`},
			{"an invalid sample time", `{status: {sampledAt: now}}`, "status.sampledAt", "date-time"},
			{"an unknown MIG mode", newObservedStatus(`mig: {current: "On"}`), "status.gpus[0].mig.current", `"Enabled", "Disabled", "NotSupported"`},
			{"an unknown health", newObservedStatus(`health: Fine`), "status.gpus[0].health", `"Healthy", "Unhealthy", "Lost"`},
			{"an instance in an unknown state", newObservedStatus(`instances: [{profile: 3g.40gb, start: 0, state: Ready}]`), "status.gpus[0].instances[0].state", `"Creating", "Active", "Idle", "Reclaiming", "Destroying", "Error"`},
			{"an instance with an unnamed pod", newObservedStatus(`instances: [{profile: 3g.40gb, start: 0, state: Active, pod: {uid: a, namespace: b}}]`), "status.gpus[0].instances[0].pod.name", "Required value"},
			{"negative memory", newObservedStatus(`memoryMiB: -1`), "status.gpus[0].memoryMiB", "greater than or equal to 0"},
			{"a pod twice", `{status: {pods: [{uid: a, namespace: b, name: c}, {uid: a, namespace: b, name: d}]}}`, "status.pods[1]", "Duplicate value"},
			{"a pod with negative memory", `{status: {pods: [{uid: a, namespace: b, name: c, memoryMiB: -1}]}}`, "status.pods[0].memoryMiB", "greater than or equal to 0"},
			{"an unknown finding", `{status: {findings: [{podUID: a, reason: Rude, since: "2026-10-01T08:00:00Z"}]}}`, "status.findings[0].reason", `"ShareExceeded", "NotAllocated", "MemoryConflict"`},
			{"a finding with a negative excess", `{status: {findings: [{podUID: a, reason: ShareExceeded, since: "2026-10-01T08:00:00Z", excessMiB: -1}]}}`, "status.findings[0].excessMiB", "greater than or equal to 0"},
			{"a finding on a device with too long a name", `{status: {findings: [{podUID: a, reason: ShareExceeded, since: "2026-10-01T08:00:00Z", device: ` + longText(81) + `}]}}`, "status.findings[0].device", "may not be more than 80"},
			{"a pod with a negative limit", `{status: {pods: [{uid: a, namespace: b, name: c, limitMiB: -1}]}}`, "status.pods[0].limitMiB", "greater than or equal to 0"},
			{"another process of an unknown kind", newObservedStatus(`otherProcesses: [{name: a, kind: Pod}]`), "status.gpus[0].otherProcesses[0].kind", `"Host", "Service", "Container", "Slurm"`},
			{"another process without a name", newObservedStatus(`otherProcesses: [{kind: Host}]`), "status.gpus[0].otherProcesses[0].name", "Required value"},
			{"another process with a name that is too long", newObservedStatus(`otherProcesses: [{kind: Host, name: ` + longText(65) + `}]`), "status.gpus[0].otherProcesses[0].name", "may not be more than 64"},
			{"another process with an owner that is too long", newObservedStatus(`otherProcesses: [{kind: Host, name: a, owner: ` + longText(65) + `}]`), "status.gpus[0].otherProcesses[0].owner", "may not be more than 64"},
			{"another process with negative memory", newObservedStatus(`otherProcesses: [{kind: Host, name: a, memoryMiB: -1}]`), "status.gpus[0].otherProcesses[0].memoryMiB", "greater than or equal to 0"},
			{"too many other processes", newObservedStatus(`otherProcesses: [` + repeatItems(17, `{kind: Host, name: a, pid: %d}`) + `]`), "status.gpus[0].otherProcesses", "at most 16 items"},
			{"a process list", `{status: {processes: [{pid: 1}]}}`, "status.processes", "unknown field"},
		},
	}
}
