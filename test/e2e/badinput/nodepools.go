// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import (
	"fmt"
	"strings"
)

// engines are the schedulers with the ways of sharing that each can realise.
var engines = map[string][]string{
	"kube-scheduler": {"None", "MIG", "MPS", "TimeSlicing"},
	"yunikorn":       {"None", "MIG", "MPS", "TimeSlicing"},
	"kueue":          {"None", "MIG", "MPS", "TimeSlicing"},
	"kai":            {"None", "KAI", "MIG"},
	"volcano":        {"None", "HAMi", "MIG"},
	"koordinator":    {"None", "HAMi", "MIG"},
	"hami":           {"None", "HAMi", "MIG"},
}

var sharings = []string{"None", "MIG", "MPS", "TimeSlicing", "KAI", "HAMi"}

func nodePools() table {
	k := table{
		kind: "NodePool",
		allowed: []edit{
			{name: "the least", patch: `{spec: {sharing: null, compute: null, tolerations: null, mig: null}}`},
			{name: "the longest name", patch: `{metadata: {name: ` + strings.Repeat("a", 53) + `}}`},
			{name: "MIG planned from demand", patch: `{spec: {mig: {planning: Dynamic, layout: null}}}`},
			{name: "MIG, and nothing said", patch: `{spec: {mig: null}}`},
			{name: "strict compute under MPS", patch: `{spec: {sharing: MPS, compute: Strict, mig: null}}`},
			{name: "strict compute under HAMi", patch: `{spec: {scheduler: hami, sharing: HAMi, compute: Strict, mig: null}}`},
			{name: "a toleration of everything", patch: `{spec: {tolerations: [{operator: Exists}]}}`},
			{name: "other labels of NVIDIA's", patch: `{spec: {nodeSelector: {nvidia.com/gpu.present: "true"}}}`},
		},
		refused: []edit{
			{"a name too long for a resource", `{metadata: {name: ` + strings.Repeat("a", 54) + `}}`, "metadata.name", "at most 53 characters"},
			{"a name with a dot", `{metadata: {name: dgx.h100}}`, "metadata.name", "DNS label"},
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"an unknown field", `{spec: {nodeselector: {a: b}}}`, "spec.nodeselector", "unknown field"},
			{"no selector", `{spec: {nodeSelector: null}}`, "spec.nodeSelector", "Required value"},
			{"an empty selector", `{spec: {nodeSelector: {sluice.dev/node-pool: null}}}`, "spec.nodeSelector", "at least 1 properties"},
			{"a selector with too many labels", `{spec: {nodeSelector: {` + list(17, "l%[1]d: x") + `}}}`, "spec.nodeSelector", "at most 16"},
			{"a label's value that is no string", `{spec: {nodeSelector: {pool: true}}}`, "spec.nodeSelector.pool", "must be of type string"},
			{"no scheduler", `{spec: {scheduler: null}}`, "spec.scheduler", "Required value"},
			{"an unknown scheduler", `{spec: {scheduler: slurm}}`, "spec.scheduler", `"kube-scheduler", "kueue", "kai", "volcano", "yunikorn", "koordinator", "hami"`},
			{"an unknown sharing", `{spec: {sharing: mig}}`, "spec.sharing", `"None", "MIG", "MPS", "TimeSlicing", "KAI", "HAMi"`},
			{"an unknown compute", `{spec: {compute: Loose}}`, "spec.compute", `"Fair", "Strict"`},
			{"strict compute under MIG", `{spec: {compute: Strict}}`, "spec.compute", "only where sharing is MPS or HAMi; with MIG"},
			{"strict compute of whole GPUs", `{spec: {sharing: None, mig: null, compute: Strict}}`, "spec.compute", "only where sharing is MPS or HAMi"},
			{"tolerations that are no list", `{spec: {tolerations: all}}`, "spec.tolerations", "must be of type array"},
			{"too many tolerations", `{spec: {tolerations: [` + list(17, "{key: k%d, operator: Exists}") + `]}}`, "spec.tolerations", "at most 16 items"},
			{"a toleration with an unknown operator", `{spec: {tolerations: [{key: a, operator: In, value: b}]}}`, "spec.tolerations", "operator must be Exists or Equal"},
			{"a toleration with an unknown effect", `{spec: {tolerations: [{key: a, operator: Exists, effect: Never}]}}`, "spec.tolerations", "NoSchedule, PreferNoSchedule or NoExecute"},
			{"a toleration of a value that needs none", `{spec: {tolerations: [{key: a, operator: Exists, value: b}]}}`, "spec.tolerations", "operator Exists takes no value"},
			{"a toleration without a key", `{spec: {tolerations: [{operator: Equal, value: b}]}}`, "spec.tolerations", "needs a key"},
			{"mig under MPS", `{spec: {sharing: MPS}}`, "spec.mig", "for sharing MIG only; it is MPS here"},
			{"mig without sharing", `{spec: {sharing: null}}`, "spec.mig", "for sharing MIG only; it is None here"},
			{"an unknown planning", `{spec: {mig: {planning: Sometimes}}}`, "spec.mig.planning", `"Dynamic", "Static"`},
			{"unknown resets", `{spec: {mig: {resets: Always}}}`, "spec.mig.resets", `"Never", "WhenIdle", "Drain"`},
			{"a static plan without a layout", `{spec: {mig: {layout: null}}}`, "spec.mig.layout", "required where planning is Static"},
			{"a dynamic plan with a layout", `{spec: {mig: {planning: Dynamic}}}`, "spec.mig.layout", "planning Static only"},
			{"a layout without a plan", `{spec: {mig: {planning: null}}}`, "spec.mig.layout", "planning Static only"},
			{"no profile", layout(`{migEnabled: true}`), "spec.mig.layout[0].migDevices", "at least one profile"},
			{"profiles without MIG", layout(`{migEnabled: false, migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].migDevices", "left out where migEnabled is false"},
			{"a compute instance", layout(`{migDevices: {1c.3g.40gb: 1}}`), "spec.mig.layout[0].migDevices", "profiles of GPU instances, such as 3g.40gb"},
			{"a profile of an unheard-of size", layout(`{migDevices: {9g.40gb: 1}}`), "spec.mig.layout[0].migDevices", "profiles of GPU instances"},
			{"no instances of a profile", layout(`{migDevices: {1g.10gb: 0}}`), "spec.mig.layout[0].migDevices", "from 1 to 8"},
			{"too many instances of a profile", layout(`{migDevices: {1g.10gb: 9}}`), "spec.mig.layout[0].migDevices", "from 1 to 8"},
			{"migEnabled that is no truth", layout(`{migEnabled: "yes", migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].migEnabled", "must be of type boolean"},
			{"a board that is none", layout(`{deviceFilter: [H100], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].deviceFilter[0]", "should match"},
			{"a board twice", layout(`{deviceFilter: ["0x233010DE", "0x233010DE"], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].deviceFilter[1]", "Duplicate value"},
			{"a GPU's number below 0", layout(`{devices: [-1], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].devices[0]", "greater than or equal to 0"},
			{"a GPU's number beyond a node's", layout(`{devices: [16], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].devices[0]", "less than or equal to 15"},
			{"too many GPUs", layout(`{devices: [` + list(17, "%d") + `], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].devices", "at most 16 items"},
			{"too many boards", layout(`{deviceFilter: [` + list(17, `"0x23%02d10DE"`) + `], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].deviceFilter", "at most 16 items"},
			{"too many profiles", layout(`{migDevices: {` + list(9, `1g.%dgb: 1`) + `}}`), "spec.mig.layout[0].migDevices", "at most 8"},
			{"too many layouts", layout(list(33, `{devices: [%d], migDevices: {1g.10gb: 1}}`)), "spec.mig.layout", "at most 32 items"},
			{"a GPU twice", layout(`{devices: [1, 1], migDevices: {1g.10gb: 1}}`), "spec.mig.layout[0].devices[1]", "Duplicate value"},
		},
		thawed: []edit{
			{name: "another engine", patch: `{spec: {scheduler: kai}}`},
		},
		status: []edit{
			{"a count that is none", `{status: {gpus: eight}}`, "status.gpus", "must be of type integer"},
			{"a board twice", `{status: {boards: [{product: A, memoryMiB: 1}, {product: A, memoryMiB: 2}]}}`, "status.boards[1]", "Duplicate value"},
			{"a board of negative memory", `{status: {boards: [{product: A, memoryMiB: -1}]}}`, "status.boards[0].memoryMiB", "greater than or equal to 0"},
			{"a profile that is none", `{status: {boards: [{product: A, memoryMiB: 1, migProfiles: [3g]}]}}`, "status.boards[0].migProfiles[0]", "such as 3g.40gb"},
			{"a condition twice", `{status: {conditions: [` + condition("Ready") + `, ` + condition("Ready") + `]}}`, "status.conditions[1]", "Duplicate value"},
		},
	}
	for _, key := range []string{"product", "count", "replicas", "memory", "sharing-strategy"} {
		k.refused = append(k.refused, edit{
			"the label nvidia.com/gpu." + key, `{spec: {nodeSelector: {nvidia.com/gpu.` + key + `: "1"}}}`,
			"spec.nodeSelector", "must not use a label that GPU feature discovery rewrites",
		})
	}
	for engine, can := range engines {
		for _, sharing := range sharings {
			e := edit{name: sharing + " on " + engine, patch: fmt.Sprintf(`{metadata: {labels: {pair: x}}, spec: {scheduler: %s, sharing: %s, mig: null}}`, engine, sharing)}
			if strings.Contains(strings.Join(can, " ")+" ", sharing+" ") {
				k.allowed = append(k.allowed, e)
				continue
			}
			e.field = "spec.sharing"
			e.want = fmt.Sprintf("must be %s or %s where the scheduler is %s", strings.Join(can[:len(can)-1], ", "), can[len(can)-1], engine)
			k.refused = append(k.refused, e)
		}
	}
	return k
}

func layout(entry string) string {
	return `{spec: {mig: {layout: [` + entry + `]}}}`
}
