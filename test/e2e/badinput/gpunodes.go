// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

const someGPU = "GPU-8f6e2a04-1c5b-4a5e-9d2f-3b7c6d5e4f30"

func gpu(fields string) string { return `{spec: {gpus: [{` + fields + `}]}}` }

func instance(fields string) string {
	return gpu(`uuid: ` + someGPU + `, migEnabled: true, instances: [` + fields + `]`)
}

func observed(fields string) string {
	return `{status: {gpus: [{uuid: ` + someGPU + `, index: 0, ` + fields + `}]}}`
}

func gpuNodes() table {
	const profile = "a profile of GPU instances, such as 3g.40gb or 1g.10gb+me"
	return table{
		kind: "GPUNode",
		allowed: []edit{
			{name: "nothing decided", patch: `{spec: null}`},
			{name: "MIG without instances", patch: gpu(`uuid: ` + someGPU + `, migEnabled: true`)},
			{name: "a full board", patch: instance(list(7, `{profile: 1g.10gb, start: %d}`))},
			{name: "profiles with attributes", patch: instance(`{profile: 1g.24gb+me.all, start: 0}, {profile: 1g.24gb-me, start: 1}, {profile: 1g.24gb+gfx, start: 2}`)},
		},
		refused: []edit{
			{"an unknown field", `{spec: {pool: a}}`, "spec.pool", "unknown field"},
			{"a pool with a name that is too long", `{spec: {nodePool: ` + long(54) + `}}`, "spec.nodePool", "may not be more than 53"},
			{"GPUs that are no list", `{spec: {gpus: 8}}`, "spec.gpus", "must be of type array"},
			{"too many GPUs", `{spec: {gpus: [` + list(17, `{uuid: GPU-8f6e2a04-1c5b-4a5e-9d2f-3b7c6d5e4f%02d, migEnabled: true}`) + `]}}`, "spec.gpus", "at most 16 items"},
			{"a GPU twice", `{spec: {gpus: [{uuid: ` + someGPU + `, migEnabled: true}, {uuid: ` + someGPU + `, migEnabled: false}]}}`, "spec.gpus[1]", "Duplicate value"},
			{"a GPU without an identity", gpu(`migEnabled: true`), "spec.gpus[0].uuid", "Required value"},
			{"a GPU by its number", gpu(`uuid: "0", migEnabled: true`), "spec.gpus[0].uuid", "should match"},
			{"a MIG device for a GPU", gpu(`uuid: MIG-8f6e2a04-1c5b-4a5e-9d2f-3b7c6d5e4f30, migEnabled: true`), "spec.gpus[0].uuid", "should match '^GPU-"},
			{"a GPU with too long an identity", gpu(`uuid: ` + someGPU + `00000, migEnabled: true`), "spec.gpus[0].uuid", "may not be more than 40"},
			{"a GPU in no mode", gpu(`uuid: ` + someGPU), "spec.gpus[0].migEnabled", "Required value"},
			{"a reset that is no truth", gpu(`uuid: ` + someGPU + `, migEnabled: true, mayReset: "yes"`), "spec.gpus[0].mayReset", "must be of type boolean"},
			{"instances without MIG", gpu(`uuid: ` + someGPU + `, migEnabled: false, instances: [{profile: 3g.40gb, start: 0}]`), "spec.gpus[0].instances", "must be left out where migEnabled is false"},
			{"two instances at one place", instance(`{profile: 1g.10gb, start: 0}, {profile: 2g.20gb, start: 0}`), "spec.gpus[0].instances[1]", "Duplicate value"},
			{"an instance without a profile", instance(`{start: 0}`), "spec.gpus[0].instances[0].profile", "Required value"},
			{"an instance of no profile", instance(`{profile: half, start: 0}`), "spec.gpus[0].instances[0].profile", profile},
			{"an instance of a resource's name", instance(`{profile: mig-3g.40gb, start: 0}`), "spec.gpus[0].instances[0].profile", profile},
			{"an instance of an endless profile", instance(`{profile: 1g.10gb+` + long(20) + `, start: 0}`), "spec.gpus[0].instances[0].profile", "may not be more than 24"},
			{"too many instances", instance(list(9, `{profile: 1g.10gb, start: %d}`)), "spec.gpus[0].instances", "at most 8 items"},
			{"a compute instance", instance(`{profile: 1c.3g.40gb, start: 0}`), "spec.gpus[0].instances[0].profile", "compute instances (1c.3g.40gb) are not offered"},
			{"an instance of no place", instance(`{profile: 3g.40gb}`), "spec.gpus[0].instances[0].start", "Required value"},
			{"an instance off the board", instance(`{profile: 1g.10gb, start: 8}`), "spec.gpus[0].instances[0].start", "less than or equal to 7"},
			{"an instance before the board", instance(`{profile: 1g.10gb, start: -1}`), "spec.gpus[0].instances[0].start", "greater than or equal to 0"},
		},
		status: []edit{
			{"an unknown source of utilisation", `{status: {utilisationSource: Guess}}`, "status.utilisationSource", `"NVML", "Unavailable"`},
			{"a sample at no instant", `{status: {sampledAt: now}}`, "status.sampledAt", "date-time"},
			{"an unknown mode", observed(`mig: {current: "On"}`), "status.gpus[0].mig.current", `"Enabled", "Disabled", "NotSupported"`},
			{"an unknown health", observed(`health: Fine`), "status.gpus[0].health", `"Healthy", "Unhealthy", "Lost"`},
			{"an instance in an unknown state", observed(`instances: [{profile: 3g.40gb, start: 0, state: Ready}]`), "status.gpus[0].instances[0].state", `"Creating", "Active", "Idle", "Reclaiming", "Destroying", "Error"`},
			{"an instance of a pod without a name", observed(`instances: [{profile: 3g.40gb, start: 0, state: Active, pod: {uid: a, namespace: b}}]`), "status.gpus[0].instances[0].pod.name", "Required value"},
			{"negative memory", observed(`memoryMiB: -1`), "status.gpus[0].memoryMiB", "greater than or equal to 0"},
			{"a pod twice", `{status: {pods: [{uid: a, namespace: b, name: c}, {uid: a, namespace: b, name: d}]}}`, "status.pods[1]", "Duplicate value"},
			{"a pod that uses less than nothing", `{status: {pods: [{uid: a, namespace: b, name: c, memoryMiB: -1}]}}`, "status.pods[0].memoryMiB", "greater than or equal to 0"},
			{"an unknown finding", `{status: {findings: [{podUID: a, reason: Rude, since: "2026-10-01T08:00:00Z"}]}}`, "status.findings[0].reason", `"OverShare", "NotAllocated"`},
			{"a process list", `{status: {processes: [{pid: 1}]}}`, "status.processes", "unknown field"},
		},
	}
}
