// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

func policies() table {
	const builtIn = "the name of a built-in policy, such as core.gpu; core.project and core.quota cannot be replaced"
	return table{
		kind: "Policy",
		allowed: []edit{
			{name: "the least", patch: `{spec: {enforcement: null, match: null, parameters: null, replaces: null}}`},
			{name: "no parameters", patch: `{spec: {parameters: {maxGPUs: null, nested: null}}}`},
			{name: "the name of a built-in policy", patch: `{metadata: {name: core.nodepool}}`},
			{name: "a long source", patch: `{spec: {rego: ` + long(262144) + `}}`},
		},
		refused: []edit{
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"an unknown field", `{spec: {template: x}}`, "spec.template", "unknown field"},
			{"an unknown enforcement", `{spec: {enforcement: deny}}`, "spec.enforcement", `"Deny", "Warn", "DryRun"`},
			{"a match in a word", `{spec: {match: all}}`, "spec.match", "must be of type object"},
			{"an unknown field to match", `{spec: {match: {namespaces: [a]}}}`, "spec.match.namespaces", "unknown field"},
			{"a department in a word", `{spec: {match: {departments: h2}}}`, "spec.match.departments", "must be of type array"},
			{"a department without a name", `{spec: {match: {departments: [""]}}}`, "spec.match.departments[0]", "at least 1 chars"},
			{"a department with a name that is too long", `{spec: {match: {departments: [` + long(64) + `]}}}`, "spec.match.departments[0]", "may not be more than 63"},
			{"too many departments", `{spec: {match: {departments: [` + list(257, "d%d") + `]}}}`, "spec.match.departments", "at most 256 items"},
			{"a department twice", `{spec: {match: {departments: [a, a]}}}`, "spec.match.departments[1]", "Duplicate value"},
			{"a project with a name that is too long", `{spec: {match: {projects: [` + long(64) + `]}}}`, "spec.match.projects[0]", "may not be more than 63"},
			{"a project without a name", `{spec: {match: {projects: [""]}}}`, "spec.match.projects[0]", "at least 1 chars"},
			{"too many projects", `{spec: {match: {projects: [` + list(1025, "p%d") + `]}}}`, "spec.match.projects", "at most 1024 items"},
			{"a project twice", `{spec: {match: {projects: [a, a]}}}`, "spec.match.projects[1]", "Duplicate value"},
			{"a kind as a resource", `{spec: {match: {kinds: [pods]}}}`, "spec.match.kinds[0]", "should match"},
			{"a kind with a version", `{spec: {match: {kinds: [batch/v1.Job]}}}`, "spec.match.kinds[0]", "should match"},
			{"a kind that is too long", `{spec: {match: {kinds: [K` + long(317) + `]}}}`, "spec.match.kinds[0]", "may not be more than 317"},
			{"too many kinds", `{spec: {match: {kinds: [` + list(65, "K%d") + `]}}}`, "spec.match.kinds", "at most 64 items"},
			{"a kind twice", `{spec: {match: {kinds: [Pod, Pod]}}}`, "spec.match.kinds[1]", "Duplicate value"},
			{"an unknown operation", `{spec: {match: {operations: [DELETE]}}}`, "spec.match.operations[0]", `"CREATE", "UPDATE"`},
			{"an operation twice", `{spec: {match: {operations: [CREATE, CREATE]}}}`, "spec.match.operations[1]", "Duplicate value"},
			{"parameters that are no object", `{spec: {parameters: [1]}}`, "spec.parameters", "must be of type object"},
			{"in the place of a policy that must stay", `{spec: {replaces: core.quota}}`, "spec.replaces", builtIn},
			{"in the place of another that must stay", `{spec: {replaces: core.project}}`, "spec.replaces", builtIn},
			{"in the place of a team's", `{spec: {replaces: interactive-at-most-one-gpu}}`, "spec.replaces", builtIn},
			{"in the place of nothing", `{spec: {replaces: ""}}`, "spec.replaces", builtIn},
			{"in the place of a policy with a name that is too long", `{spec: {replaces: core.` + long(60) + `}}`, "spec.replaces", "may not be more than 63"},
			{"no source", `{spec: {rego: null}}`, "spec.rego", "Required value"},
			{"an empty source", `{spec: {rego: ""}}`, "spec.rego", "at least 1 chars"},
			{"a source that is too long", `{spec: {rego: ` + long(262145) + `}}`, "spec.rego", "may not be more than 262144"},
		},
		thawed: []edit{
			{name: "another source", patch: `{spec: {rego: package other}}`},
		},
		status: []edit{
			{"fewer violations than none", `{status: {violations: -1}}`, "status.violations", "greater than or equal to 0"},
			{"an error that says nothing", `{status: {errors: [{line: 1}]}}`, "status.errors[0].message", "Required value"},
		},
	}
}
