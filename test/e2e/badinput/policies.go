// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import "strings"

// exemptionEnd is the end of an exemption.
const exemptionEnd = `until: "2026-12-31T23:00:00Z"`

// excluding returns the edit of a Policy to these exclusions.
func excluding(text string) string { return `{spec: {match: {exclude: ` + text + `}}}` }

// exempting returns the edit of a Policy to these exemptions. It replaces no other one.
func exempting(text string) string { return `{spec: {replaces: null, exemptions: [` + text + `]}}` }

// libraryWith returns the edit of a Policy to a library that keeps a field of the Policy.
func libraryWith(kept string) string {
	var text strings.Builder
	text.WriteString(`{spec: {type: Library`)
	for _, field := range []string{"enforcement", "match", "parameters", "parametersSchema", "replaces"} {
		if field != kept {
			text.WriteString(", " + field + ": null")
		}
	}
	text.WriteString("}}")
	return text.String()
}

// excludeEdits are rejected edits of spec.match.exclude.
func excludeEdits() []edit {
	const projects, departments = "spec.match.exclude.projects", "spec.match.exclude.departments"
	return []edit{
		{"exclusions that are a list", excluding(`[a]`), "spec.match.exclude", "must be of type object"},
		{"an excluded project with an empty name", excluding(`{projects: [""]}`), projects + "[0]", "at least 1 chars"},
		{"an excluded project with a long name", excluding(`{projects: [` + longText(64) + `]}`), projects + "[0]", "may not be more than 63"},
		{"too many excluded projects", excluding(`{projects: [` + repeatItems(1025, "p%d") + `]}`), projects, "at most 1024 items"},
		{"an excluded project twice", excluding(`{projects: [a, a]}`), projects + "[1]", "Duplicate value"},
		{"an excluded department with an empty name", excluding(`{departments: [""]}`), departments + "[0]", "at least 1 chars"},
		{
			"an excluded department with a long name", excluding(`{departments: [` + longText(64) + `]}`),
			departments + "[0]", "may not be more than 63",
		},
		{"too many excluded departments", excluding(`{departments: [` + repeatItems(257, "d%d") + `]}`), departments, "at most 256 items"},
		{"an excluded department twice", excluding(`{departments: [a, a]}`), departments + "[1]", "Duplicate value"},
	}
}

// libraryEdits are rejected edits of spec.type, and of the fields that a library does not have.
func libraryEdits() []edit {
	return []edit{
		{"an unknown type", `{spec: {type: Module}}`, "spec.type", `"Policy", "Library"`},
		{"a library with an enforcement", libraryWith("enforcement"), "spec.enforcement", "a library is not enforced"},
		{"a library with a match", libraryWith("match"), "spec.match", "a library matches no objects"},
		{"a library with parameters", libraryWith("parameters"), "spec.parameters", "a library has no parameters"},
		{"a library with a schema", libraryWith("parametersSchema"), "spec.parametersSchema", "a library has no parameters"},
		{"a library that replaces a policy", libraryWith("replaces"), "spec.replaces", "a library replaces no policy"},
		{
			"a library with exemptions",
			strings.Replace(libraryWith("rego"), "}}", ", exemptions: [{projects: [a], reason: b, "+exemptionEnd+"}]}}", 1),
			"spec.exemptions", "a library denies nothing",
		},
	}
}

// exemptionEdits are rejected edits of spec.exemptions.
func exemptionEdits() []edit {
	const good = `{projects: [a], reason: b, ` + exemptionEnd + `}`
	const field = "spec.exemptions[0]"
	return []edit{
		{"a replacement with exemptions", `{spec: {exemptions: [` + good + `]}}`, "spec.exemptions", "a policy that replaces a built-in one"},
		{"no exemptions", exempting(""), "spec.exemptions", "at least 1 items"},
		{"too many exemptions", exempting(strings.Repeat(good+", ", 64) + good), "spec.exemptions", "at most 64 items"},
		{"an exemption of no projects", exempting(`{projects: [], reason: b, ` + exemptionEnd + `}`), field + ".projects", "at least 1 items"},
		{"an exemption of all projects", exempting(`{reason: b, ` + exemptionEnd + `}`), field + ".projects", "Required value"},
		{
			"an exempted name with a slash", exempting(`{projects: [a], names: [a/b], reason: b, ` + exemptionEnd + `}`),
			field + ".names[0]", "should match",
		},
		{"an exemption without a reason", exempting(`{projects: [a], ` + exemptionEnd + `}`), field + ".reason", "Required value"},
		{
			"an exemption with a long reason", exempting(`{projects: [a], reason: ` + longText(513) + `, ` + exemptionEnd + `}`),
			field + ".reason", "may not be more than 512",
		},
		{"an exemption without an end", exempting(`{projects: [a], reason: b}`), field + ".until", "Required value"},
		{"an exemption until no time", exempting(`{projects: [a], reason: b, until: soon}`), field + ".until", "must be of type date-time"},
	}
}
