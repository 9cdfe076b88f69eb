// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import (
	"fmt"
	"strings"
)

// These fields are common to Departments and Projects: quotas, members, limits.

const gpus = "at least 0 and less than 100000, in steps of a thousandth, such as 1, 500m or 0.5"

func newPoolQuotas(entries string) string { return `{spec: {nodePools: [` + entries + `]}}` }

func newQuota(entry string) string { return newPoolQuotas(`{name: a, gpu: {` + entry + `}}`) }

var allowedQuotas = []edit{
	{name: "no pools", patch: `{spec: {nodePools: null}}`},
	{name: "only a limit", patch: newQuota(`limit: "1"`)},
	{name: "whole GPUs as numbers", patch: newQuota(`guaranteed: 1, limit: 8`)},
	{name: "a number and a string", patch: newQuota(`guaranteed: 2, limit: "2"`)},
	{name: "a string and a number", patch: newQuota(`guaranteed: "2000m", limit: 2`)},
	{name: "halves", patch: newQuota(`guaranteed: "0.5", limit: "500m"`)},
	{name: "just above one and a half", patch: newQuota(`guaranteed: "1.5", limit: "1.501"`)},
	{name: "a thousandth", patch: newQuota(`guaranteed: "0.001", limit: "1m"`)},
	{name: "thousandths without an exact binary fraction", patch: newQuota(`guaranteed: "0.29", limit: "1.005"`)},
	{name: "thousands with the suffix k", patch: newQuota(`guaranteed: "1k", limit: "99k"`)},
	{name: "no objects of a kind", patch: `{spec: {objects: {pods: 0, count/jobs.batch: 1000000, services.loadbalancers: 1}}}`},
	{name: "all zero", patch: newQuota(`guaranteed: 0, limit: 0, overQuotaWeight: 0`)},
	{name: "the maximum", patch: newQuota(`limit: "99999.999", overQuotaWeight: 1000`)},
}

var rejectedQuotas = []edit{
	{"objects that are not a map", `{spec: {objects: 5}}`, "spec.objects", "must be of type object"},
	{"an unknown object", `{spec: {objects: {jobs: 5}}}`, "spec.objects", "count/<resource>.<group>, such as count/jobs.batch"},
	{"pods that have ended", `{spec: {objects: {count/pods: 5}}}`, "spec.objects", "use pods"},
	{"objects below 0", `{spec: {objects: {pods: -1}}}`, "spec.objects.pods", "greater than or equal to 0"},
	{"too many objects", `{spec: {objects: {pods: 1000001}}}`, "spec.objects.pods", "less than or equal to 1000000"},
	{"objects that are no number", `{spec: {objects: {pods: "5"}}}`, "spec.objects.pods", "must be of type integer"},
	{"too many kinds of objects", `{spec: {objects: {` + repeatItems(33, "count/kind%d: 1") + `}}}`, "spec.objects", "at most 32"},
	{"pools that are not a list", `{spec: {nodePools: a}}`, "spec.nodePools", "must be of type array"},
	{"too many pools", newPoolQuotas(repeatItems(11, `{name: p%d, gpu: {limit: 1}}`)), "spec.nodePools", "at most 10 items"},
	{"a pool twice", newPoolQuotas(`{name: a, gpu: {limit: 1}}, {name: a, gpu: {limit: 2}}`), "spec.nodePools[1]", "Duplicate value"},
	{"a pool without a name", newPoolQuotas(`{gpu: {limit: 1}}`), "spec.nodePools[0].name", "Required value"},
	{"a pool with an invalid name", newPoolQuotas(`{name: DGX, gpu: {limit: 1}}`), "spec.nodePools[0].name", "should match"},
	{"a pool with a name that is too long", newPoolQuotas(`{name: ` + longText(47) + `, gpu: {limit: 1}}`), "spec.nodePools[0].name", "may not be more than 46"},
	{"a pool with an empty name", newPoolQuotas(`{name: "", gpu: {limit: 1}}`), "spec.nodePools[0].name", "at least 1 chars"},
	{"a pool without a quota", newPoolQuotas(`{name: a}`), "spec.nodePools[0].gpu", "Required value"},
	{"a quota with an unknown field", newQuota(`limit: 1, max: 2`), "spec.nodePools[0].gpu.max", "unknown field"},
	{"no limit", newQuota(`guaranteed: 1`), "spec.nodePools[0].gpu.limit", "Required value"},
	{"a limit below 0", newQuota(`limit: -1`), "spec.nodePools[0].gpu.limit", gpus},
	{"a limit below 0, as a string", newQuota(`limit: "-500m"`), "spec.nodePools[0].gpu.limit", gpus},
	{"a limit above the maximum", newQuota(`limit: 100000`), "spec.nodePools[0].gpu.limit", gpus},
	{"a limit above the maximum, as a string", newQuota(`limit: "100k"`), "spec.nodePools[0].gpu.limit", gpus},
	{"a limit that is too fine", newQuota(`limit: "0.0001"`), "spec.nodePools[0].gpu.limit", gpus},
	{"a limit that is slightly too fine", newQuota(`limit: "1.0005"`), "spec.nodePools[0].gpu.limit", gpus},
	{"a limit in an unknown unit", newQuota(`guaranteed: 0, limit: "1x"`), "spec.nodePools[0].gpu.limit", "should match"},
	{"a limit that is too long", newQuota(`limit: "00000000001"`), "spec.nodePools[0].gpu.limit", "may not be more than 10"},
	{"a limit that is an unquoted fraction", newQuota(`limit: 0.5`), "spec.nodePools[0].gpu.limit", "must be of type integer,string"},
	{"a guarantee that is too long", newQuota(`guaranteed: "00000000001", limit: 1`), "spec.nodePools[0].gpu.guaranteed", "may not be more than 10"},
	{"a guarantee below 0", newQuota(`guaranteed: -1, limit: 1`), "spec.nodePools[0].gpu.guaranteed", gpus},
	{"a guarantee that is too fine", newQuota(`guaranteed: "0.0001", limit: 1`), "spec.nodePools[0].gpu.guaranteed", gpus},
	{"a guarantee over the limit", newQuota(`guaranteed: 2, limit: 1`), "spec.nodePools[0].gpu.guaranteed", "must not be more than the limit"},
	{"a guarantee over the limit, as a string", newQuota(`guaranteed: "1.001", limit: "1"`), "spec.nodePools[0].gpu.guaranteed", "must not be more than the limit"},
	{"a guarantee over the limit, mixed", newQuota(`guaranteed: 1, limit: "999m"`), "spec.nodePools[0].gpu.guaranteed", "must not be more than the limit"},
	{"a weight below 0", newQuota(`limit: 1, overQuotaWeight: -1`), "spec.nodePools[0].gpu.overQuotaWeight", "greater than or equal to 0"},
	{"a weight beyond the most", newQuota(`limit: 1, overQuotaWeight: 1001`), "spec.nodePools[0].gpu.overQuotaWeight", "less than or equal to 1000"},
	{"a weight that is a fraction", newQuota(`limit: 1, overQuotaWeight: 0.5`), "spec.nodePools[0].gpu.overQuotaWeight", "must be of type integer"},
}

func resources(fields string) string { return `{spec: {resources: {` + fields + `}}}` }

const (
	cores = "must be a number of cores, at least 0 and less than 10 million, such as 64 or 500m"
	bytes = "must be an amount of memory, at least 0 and less than 1Ei, such as 512Gi"
)

var allowedResources = []edit{
	{name: "no CPU and memory", patch: `{spec: {resources: null}}`},
	{name: "only CPU", patch: resources(`cpu: 1500m, memory: null`)},
	{name: "only memory", patch: resources(`cpu: null, memory: 1.5Ti`)},
	{name: "both as numbers", patch: resources(`cpu: 64, memory: 549755813888`)},
	{name: "none of both", patch: resources(`cpu: 0, memory: "0"`)},
	{name: "the most CPU", patch: resources(`cpu: "9999999999m"`)},
	{name: "the most memory", patch: resources(`memory: 1023Pi`)},
}

var rejectedResources = []edit{
	{"resources that are no object", `{spec: {resources: 64}}`, "spec.resources", "must be of type object"},
	{"a resource that is not counted", resources(`storage: 1Ti`), "spec.resources.storage", "unknown field"},
	{"CPU below 0", resources(`cpu: -1`), "spec.resources.cpu", cores},
	{"CPU below 0, as text", resources(`cpu: "-500m"`), "spec.resources.cpu", cores},
	{"CPU beyond the most", resources(`cpu: 10000000`), "spec.resources.cpu", cores},
	{"CPU beyond the most, as text", resources(`cpu: 10M`), "spec.resources.cpu", cores},
	{"CPU in an unknown unit", resources(`cpu: 64cores`), "spec.resources.cpu", "should match"},
	{"CPU that is long", resources(`cpu: "0000000000001"`), "spec.resources.cpu", "may not be more than 12"},
	{"CPU that is a bare fraction", resources(`cpu: 0.5`), "spec.resources.cpu", "must be of type integer,string"},
	{"memory below 0", resources(`memory: -1`), "spec.resources.memory", bytes},
	{"memory below 0, as text", resources(`memory: "-1Gi"`), "spec.resources.memory", bytes},
	{"memory beyond the most", resources(`memory: 1Ei`), "spec.resources.memory", bytes},
	{"memory beyond the most, as a number", resources(`memory: 1152921504606846976`), "spec.resources.memory", bytes},
	{"memory in an unknown unit", resources(`memory: 512GB`), "spec.resources.memory", "should match"},
	{"memory that is long", resources(`memory: "000000000000000000001"`), "spec.resources.memory", "may not be more than 20"},
	{"memory that is a bare fraction", resources(`memory: 1.5`), "spec.resources.memory", "must be of type integer,string"},

	{"an unknown level of Pod Security", `{spec: {podSecurity: strict}}`, "spec.podSecurity", `"privileged", "baseline", "restricted"`},
	{"an empty level of Pod Security", `{spec: {podSecurity: ""}}`, "spec.podSecurity", "Unsupported value"},
}

func newMember(fields string) string { return `{spec: {members: [{` + fields + `}]}}` }

var rejectedMembers = []edit{
	{"members that are no list", `{spec: {members: anna}}`, "spec.members", "must be of type array"},
	{"a member twice", `{spec: {members: [{kind: User, name: a, role: viewer}, {kind: User, name: a, role: editor}]}}`, "spec.members[1]", "Duplicate value"},
	{"too many members", `{spec: {members: [` + repeatItems(257, `{kind: User, name: u%d, role: viewer}`) + `]}}`, "spec.members", "at most 256 items"},
	{"a member without a kind", newMember(`name: a, role: viewer`), "spec.members[0].kind", "Required value"},
	{"a member of an unknown kind", newMember(`kind: Robot, name: a, role: viewer`), "spec.members[0].kind", `"User", "Group", "ServiceAccount"`},
	{"a member without a name", newMember(`kind: User, role: viewer`), "spec.members[0].name", "Required value"},
	{"a member with a line break in the name", newMember(`kind: User, name: "a\nb", role: viewer`), "spec.members[0].name", "should match"},
	{"a member with a name that is too long", newMember(`kind: User, name: ` + longText(255) + `, role: viewer`), "spec.members[0].name", "may not be more than 254"},
	{"a member with an empty name", newMember(`kind: User, name: "", role: viewer`), "spec.members[0].name", "at least 1 chars"},
	{"a member without a role", newMember(`kind: User, name: a`), "spec.members[0].role", "Required value"},
	{"a member with an unknown role", newMember(`kind: User, name: a, role: admin`), "spec.members[0].role", `"department-administrator", "editor", "research-manager", "l1-researcher", "l2-researcher", "ml-engineer", "viewer", "department-viewer"`},
	{"a member who would rule the system", newMember(`kind: User, name: a, role: system-administrator`), "spec.members[0].role", "Unsupported value"},
	{"a service account without a namespace", newMember(`kind: ServiceAccount, name: a, role: viewer`), "spec.members[0].namespace", "must name the namespace of a ServiceAccount"},
	{"a group with an address", newMember(`kind: Group, name: a, role: viewer, email: a@example.org`), "spec.members[0].email", "must be left out for a Group"},
	{"an address of two lines", newMember(`kind: User, name: a, role: viewer, email: "a@example.org\nBcc: x@y.z"`), "spec.members[0].email", "should match"},
	{"a user with a namespace", newMember(`kind: User, namespace: b, name: a, role: viewer`), "spec.members[0].namespace", "be left out for a User or a Group"},
	{"a service account of a namespace that is none", newMember(`kind: ServiceAccount, namespace: "B c", name: a, role: viewer`), "spec.members[0].namespace", "should match"},
	{"a service account of a namespace that is too long", newMember(`kind: ServiceAccount, namespace: ` + longText(64) + `, name: a, role: viewer`), "spec.members[0].namespace", "may not be more than 63"},
}

const duration = "such as 30m, 48h, 10d or 1d12h (d = 24 h)"

func limits(kind, fields string) string {
	return fmt.Sprintf(`{spec: {workloads: {%q: {%s}}}}`, kind, fields)
}

var rejectedLimits = []edit{
	{"limits that are no map", `{spec: {workloads: [train]}}`, "spec.workloads", "must be of type object"},
	{"an unknown type of workload", `{spec: {workloads: {"*": null, training: {maxRuntime: 1h}}}}`, "spec.workloads", "keys must be train, interactive, inference or *"},
	{"a limit with an unknown field", limits("train", `maxRunTime: 1h`), "spec.workloads.train.maxRunTime", "unknown field"},
	{"a limit in an unknown unit", limits("train", `maxRuntime: 2w`), "spec.workloads[train].maxRuntime", duration},
	{"a limit that is a fraction", limits("train", `maxRuntime: 1.5h`), "spec.workloads[train].maxRuntime", duration},
	{"a time to start in an unknown unit", limits("train", `startTimeout: 2w`), "spec.workloads[train].startTimeout", duration},
	{"a limit below 0", limits("train", `maxRuntime: -48h`), "spec.workloads[train].maxRuntime", duration},
	{"a limit of nothing", limits("train", `maxRuntime: 0h`), "spec.workloads[train].maxRuntime", "longer than zero"},
	{"a limit that is empty", limits("train", `maxRuntime: ""`), "spec.workloads[train].maxRuntime", duration},
	{"a limit without a unit", limits("train", `maxRuntime: 48`), "spec.workloads.train.maxRuntime", "must be of type string"},
	{"a limit with its units in disorder", limits("train", `maxRuntime: 1h1d`), "spec.workloads[train].maxRuntime", duration},
	{"a limit beyond all bounds", limits("train", `maxRuntime: 100000d`), "spec.workloads[train].maxRuntime", duration},
	{"a limit of many digits", limits("train", `maxRuntime: 1000000000000000000000000h`), "spec.workloads.train.maxRuntime", "may not be more than 24"},
	{"an idle time in an unknown unit", limits("train", `idleTimeout: 2H`), "spec.workloads[train].idleTimeout", duration},
	{"an idle time longer than the limit", limits("interactive", `maxRuntime: 1d, idleTimeout: 25h, resetAfter: null`), "spec.workloads[interactive].idleTimeout", "must not be longer than maxRuntime, 1d"},
	{"a reset in an unknown unit", limits("train", `resetAfter: soon`), "spec.workloads[train].resetAfter", duration},
	{"a reset longer than the limit", limits("*", `maxRuntime: 59m, resetAfter: 1h`), "spec.workloads[*].resetAfter", "must not be longer than maxRuntime, 59m"},
	{"an unknown clock", limits("train", `clock: Wall`), "spec.workloads.train.clock", `"Running", "Active"`},
	{"a dry run that is no truth", limits("train", `dryRun: "yes"`), "spec.workloads.train.dryRun", "must be of type boolean"},
}

// repeatItems is the format n times, with the numbers from 0 on.
func repeatItems(n int, format string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(items, ", ")
}

// newCondition is a condition of a type.
func newCondition(kind string) string {
	return fmt.Sprintf(`{type: %s, status: "True", reason: R, message: m, lastTransitionTime: "2026-10-01T00:00:00Z"}`, kind)
}

// longText is a text of n letters.
func longText(n int) string { return strings.Repeat("x", n) }
