// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

func extensions() table {
	const (
		project = `target: {apiVersion: sluice.dev/v1alpha1, kind: Project, name: thesis-mueller}`
		target  = "must be a workload for the action Extend, and a Project of sluice.dev/v1alpha1 for Renew and Delete"
	)
	return table{
		kind: "Extension",
		allowed: []edit{
			{name: "a renewal", patch: `{spec: {action: Renew, by: null, ` + project + `}}`},
			{name: "a deletion", patch: `{spec: {action: Delete, by: null, ` + project + `}}`},
			{name: "a workload of a kind called Project", patch: `{spec: {target: {apiVersion: example.org/v1, kind: Project}}}`},
			{name: "a reason of several lines", patch: `{spec: {reason: "a\nb"}}`},
		},
		refused: []edit{
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"an unknown field", `{spec: {until: tomorrow}}`, "spec.until", "unknown field"},
			{"no target", `{spec: {target: null}}`, "spec.target", "Required value"},
			{"a target without a version", `{spec: {target: {apiVersion: null}}}`, "spec.target.apiVersion", "Required value"},
			{"a target without a kind", `{spec: {target: {kind: null}}}`, "spec.target.kind", "Required value"},
			{"a target without a name", `{spec: {target: {name: ""}}}`, "spec.target.name", "at least 1 chars"},
			{"a target of an empty version", `{spec: {target: {apiVersion: ""}}}`, "spec.target.apiVersion", "at least 1 chars"},
			{"a target of a version that is too long", `{spec: {target: {apiVersion: ` + long(318) + `}}}`, "spec.target.apiVersion", "may not be more than 317"},
			{"a target of an empty kind", `{spec: {target: {kind: ""}}}`, "spec.target.kind", "at least 1 chars"},
			{"a target of a kind that is too long", `{spec: {target: {kind: ` + long(64) + `}}}`, "spec.target.kind", "may not be more than 63"},
			{"a target with a name that is too long", `{spec: {target: {name: ` + long(254) + `}}}`, "spec.target.name", "may not be more than 253"},
			{"more time for a project", `{spec: {` + project + `}}`, "spec.target", target},
			{"the renewal of a workload", `{spec: {action: Renew, by: null}}`, "spec.target", target},
			{"the deletion of a workload", `{spec: {action: Delete, by: null}}`, "spec.target", target},
			{"no action", `{spec: {action: null}}`, "spec.action", "Required value"},
			{"an unknown action", `{spec: {action: Stop}}`, "spec.action", `"Extend", "Renew", "Delete"`},
			{"more time without saying how much", `{spec: {by: null}}`, "spec.by", "is required for the action Extend"},
			{"a renewal by so much", `{spec: {action: Renew, ` + project + `}}`, "spec.by", "is for the action Extend only; it is Renew here"},
			{"no more time", `{spec: {by: 0h}}`, "spec.by", "longer than zero"},
			{"less time", `{spec: {by: -24h}}`, "spec.by", duration},
			{"more time than a text holds", `{spec: {by: 0000000000000000000000001h}}`, "spec.by", "may not be more than 24"},
			{"more time in months", `{spec: {by: P1M}}`, "spec.by", duration},
			{"no reason", `{spec: {reason: null}}`, "spec.reason", "Required value"},
			{"an empty reason", `{spec: {reason: "  "}}`, "spec.reason", "should match"},
			{"too long a reason", `{spec: {reason: ` + long(501) + `}}`, "spec.reason", "may not be more than 500"},
		},
		thawed: []edit{
			{name: "a label", patch: `{metadata: {labels: {a: b}}}`},
		},
		frozen: []edit{
			{"more time than was asked for", `{spec: {by: 240h}}`, "spec", "cannot be changed; make another Extension"},
			{"another target", `{spec: {target: {name: other}}}`, "spec", "cannot be changed; make another Extension"},
			{"another reason", `{spec: {reason: b}}`, "spec", "cannot be changed; make another Extension"},
		},
		status: []edit{
			{"an unknown decision", `{status: {decision: Maybe}}`, "status.decision", `"Approved", "Refused"`},
			{"another decision", `{status: {decision: Refused}}`, "status.decision", "a decision stands"},
			{"no decision any more", `{status: {decision: null}}`, "status.decision", "a decision stands"},
			{"the status taken away", `{status: null}`, "status", "a decision stands"},
			{"too long a message", `{status: {message: ` + long(501) + `}}`, "status.message", "may not be more than 500"},
		},
	}
}
