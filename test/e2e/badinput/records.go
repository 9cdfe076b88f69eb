// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import "slices"

func workloadClockTable() table {
	return table{
		kind: "WorkloadClock",
		rejected: []edit{
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"an unknown field", `{spec: {limit: 48h}}`, "spec.limit", "unknown field"},
			{"no root workload", `{spec: {root: null}}`, "spec.root", "Required value"},
			{"a root without a version", `{spec: {root: {apiVersion: null}}}`, "spec.root.apiVersion", "Required value"},
			{"a root with an empty kind", `{spec: {root: {kind: ""}}}`, "spec.root.kind", "at least 1 chars"},
			{"a root with a name that is too long", `{spec: {root: {name: ` + longText(254) + `}}}`, "spec.root.name", "may not be more than 253"},
			{"a root of a version that is too long", `{spec: {root: {apiVersion: ` + longText(318) + `}}}`, "spec.root.apiVersion", "may not be more than 317"},
			{"a root of a kind that is too long", `{spec: {root: {kind: ` + longText(64) + `}}}`, "spec.root.kind", "may not be more than 63"},
			{"a root with an empty name", `{spec: {root: {name: ""}}}`, "spec.root.name", "at least 1 chars"},
			{"a root of an empty version", `{spec: {root: {apiVersion: ""}}}`, "spec.root.apiVersion", "at least 1 chars"},
		},
		mutable: []edit{{name: "a label", patch: `{metadata: {labels: {a: b}}}`}},
		immutable: []edit{
			{"another root workload", `{spec: {root: {name: other}}}`, "spec", "another workload has another clock"},
		},
		status: []edit{
			{"an unknown type", `{status: {workloadType: "*"}}`, "status.workloadType", `"train", "interactive", "inference"`},
			{"an unknown state", `{status: {state: Idle}}`, "status.state", `"Pending", "Running", "Paused", "Stopping", "Stopped", "Finished", "Deleted"`},
			{"a negative running time", `{status: {accumulatedSeconds: -1}}`, "status.accumulatedSeconds", "greater than or equal to 0"},
			{"an invalid start of an interval", `{status: {runningSince: yesterday}}`, "status.runningSince", "date-time"},
			{"a deadline for an unknown reason", `{status: {deadline: {reason: Bored}}}`, "status.deadline.reason", `"MaxRuntime", "Idle", "ProjectSuspended", "ShareExceeded", "Preempted", "QuotaReclaimed", "StartTimeout", "ProjectDeleted"`},
			{"a deadline without a time", `{status: {deadline: {at: null}}}`, "status.deadline.at", "Required value"},
			{"a lead in an unknown unit", `{status: {leads: [{lead: 1w, reason: Idle, at: "2026-10-02T07:00:00Z"}]}}`, "status.leads[0].lead", duration},
			{"a negative share", `{status: {gpuUsage: {shareMiB: -1}}}`, "status.gpuUsage.shareMiB", "greater than or equal to 0"},
			{"a negative memory", `{status: {gpuUsage: {memoryMiB: -1}}}`, "status.gpuUsage.memoryMiB", "greater than or equal to 0"},
			{"an invalid last use", `{status: {gpuUsage: {lastActive: yesterday}}}`, "status.gpuUsage.lastActive", "date-time"},
			{"GPU time of no day", `{status: {gpuUsage: {days: [{gpuMilliSeconds: 1}]}}}`, "status.gpuUsage.days[0].date", "Required value"},
			{"GPU time of a month", `{status: {gpuUsage: {days: [{date: 2026-10, gpuMilliSeconds: 1}]}}}`, "status.gpuUsage.days[0].date", "should match"},
			{"a negative GPU time", `{status: {gpuUsage: {days: [{date: "2026-10-01", gpuMilliSeconds: -1}]}}}`, "status.gpuUsage.days[0].gpuMilliSeconds", "greater than or equal to 0"},
			{"a negative used GPU time", `{status: {gpuUsage: {days: [{date: "2026-10-01", gpuMilliSeconds: 1, usedGPUMilliSeconds: -1}]}}}`, "status.gpuUsage.days[0].usedGPUMilliSeconds", "greater than or equal to 0"},
			{"a negative idle GPU time", `{status: {gpuUsage: {days: [{date: "2026-10-01", gpuMilliSeconds: 1, idleGPUMilliSeconds: -1}]}}}`, "status.gpuUsage.days[0].idleGPUMilliSeconds", "greater than or equal to 0"},
			{"GPU time of 32 days", `{status: {gpuUsage: {days: [` + repeatItems(32, `{date: "2026-10-01", gpuMilliSeconds: %d}`) + `]}}}`, "status.gpuUsage.days", "at most 31 items"},
			{"an extension twice", `{status: {extensions: [{name: a, by: 1h, at: "2026-10-02T07:00:00Z"}, {name: a, by: 1h, at: "2026-10-02T07:00:00Z"}]}}`, "status.extensions[1]", "Duplicate value"},
		},
	}
}

func newRecipient(fields string) string { return `{spec: {recipient: {` + fields + `}}}` }

func noticeTable() table {
	return table{
		kind: "Notice",
		allowed: []edit{
			{name: "a digest", patch: `{spec: {kind: Digest, subject: null, date: 2027-03-03, digest: null, lead: null, deadline: null}}`},
			{name: "a test mail", patch: `{spec: {kind: Test, subject: null, digest: null, lead: null, deadline: null, inputs: null}}`},
			{name: "no inputs", patch: `{spec: {inputs: null}}`},
		},
		rejected: []edit{
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"an unknown field", `{spec: {text: hello}}`, "spec.text", "unknown field"},
			{"no recipient", `{spec: {recipient: null}}`, "spec.recipient", "Required value"},
			{"a recipient without a name", newRecipient(`name: null`), "spec.recipient.name", "Required value"},
			{"a recipient with an empty name", newRecipient(`name: ""`), "spec.recipient.name", "at least 1 chars"},
			{"a recipient with a name that is too long", newRecipient(`name: ` + longText(201)), "spec.recipient.name", "may not be more than 200"},
			{"a recipient with a header in the address", newRecipient(`email: "a@b.c\r\nBcc: d@e.f"`), "spec.recipient.email", address},
			{"a recipient with a header in the name", newRecipient(`name: "a\r\nBcc: d@e.f"`), "spec.recipient.name", "should match"},
			{"a recipient who mutes a test", newRecipient(`mute: [Test]`), "spec.recipient.mute[0]", `"QuotaThreshold"`},
			{"a recipient who mutes a digest", newRecipient(`mute: [Digest]`), "spec.recipient.mute[0]", `"QuotaThreshold"`},
			{"a recipient of an unknown language", newRecipient(`language: fr`), "spec.recipient.language", `"de", "en"`},
			{"a recipient with an invalid time zone", newRecipient(`timeZone: "somewhere else"`), "spec.recipient.timeZone", zone},
			{"a recipient with a time zone that is too long", newRecipient(`timeZone: ` + longText(65)), "spec.recipient.timeZone", "may not be more than 64"},
			{"no kind", `{spec: {kind: null}}`, "spec.kind", "Required value"},
			{"an unknown kind", `{spec: {kind: Greeting}}`, "spec.kind", `"ProjectExpiring"`},
			{"no subject", `{spec: {subject: null}}`, "spec.subject", "is required, except for a Digest or a Test"},
			{"a digest with a subject", `{spec: {kind: Digest, date: 2027-03-03}}`, "spec.subject", "except for a Digest or a Test, which have none"},
			{"a test with a subject", `{spec: {kind: Test, digest: null, lead: null, deadline: null, inputs: null}}`, "spec.subject", "except for a Digest or a Test, which have none"},
			{"a test in a digest", `{spec: {kind: Test, subject: null, lead: null, deadline: null, inputs: null}}`, "spec.digest", "each is sent as its own mail"},
			{"a test with a deadline", `{spec: {kind: Test, subject: null, digest: null, lead: null, inputs: null}}`, "spec.deadline", "must be left out for a Test"},
			{"a test with a lead", `{spec: {kind: Test, subject: null, digest: null, deadline: null, inputs: null}}`, "spec.deadline", "and so must lead"},
			{"a test with inputs", `{spec: {kind: Test, subject: null, digest: null, lead: null, deadline: null}}`, "spec.inputs", "must be left out for a Test"},
			{"a test with a date", `{spec: {kind: Test, subject: null, digest: null, lead: null, deadline: null, inputs: null, date: 2027-03-03}}`, "spec.date", "must be left out otherwise"},
			{"a subject without a version", `{spec: {subject: {apiVersion: null}}}`, "spec.subject.apiVersion", "Required value"},
			{"a subject without a kind", `{spec: {subject: {kind: null}}}`, "spec.subject.kind", "Required value"},
			{"a subject without a name", `{spec: {subject: {name: null}}}`, "spec.subject.name", "Required value"},
			{"a subject of an empty version", `{spec: {subject: {apiVersion: ""}}}`, "spec.subject.apiVersion", "at least 1 chars"},
			{"a subject of an empty kind", `{spec: {subject: {kind: ""}}}`, "spec.subject.kind", "at least 1 chars"},
			{"a subject with an empty name", `{spec: {subject: {name: ""}}}`, "spec.subject.name", "at least 1 chars"},
			{"a subject of a version that is too long", `{spec: {subject: {apiVersion: ` + longText(318) + `}}}`, "spec.subject.apiVersion", "may not be more than 317"},
			{"a subject of a kind that is too long", `{spec: {subject: {kind: ` + longText(64) + `}}}`, "spec.subject.kind", "may not be more than 63"},
			{"a subject with a name that is too long", `{spec: {subject: {name: ` + longText(254) + `}}}`, "spec.subject.name", "may not be more than 253"},
			{"a subject in a namespace that is too long", `{spec: {subject: {namespace: ` + longText(64) + `}}}`, "spec.subject.namespace", "may not be more than 63"},
			{"a subject with a number as its UID", `{spec: {subject: {uid: 1}}}`, "spec.subject.uid", "must be of type string"},
			{"no due time", `{spec: {dueAt: null}}`, "spec.dueAt", "Required value"},
			{"an invalid due time", `{spec: {dueAt: 2027-03-03}}`, "spec.dueAt", "date-time"},
			{"a lead in an unknown unit", `{spec: {lead: P30D}}`, "spec.lead", duration},
			{"an invalid deadline", `{spec: {deadline: tomorrow}}`, "spec.deadline", "date-time"},
			{"an invalid date", `{spec: {kind: Digest, subject: null, date: 2027-02-29}}`, "spec.date", "YYYY-MM-DD"},
			{"a digest without a date", `{spec: {kind: Digest, subject: null}}`, "spec.date", "is required for a Digest"},
			{"a date without a digest", `{spec: {date: 2027-03-03}}`, "spec.date", "must be left out otherwise"},
			{"a digest within a digest", `{spec: {kind: Digest, subject: null, date: 2027-03-03}}`, "spec.digest", "each is sent as its own mail"},
			{"a weekly summary within a digest", `{spec: {kind: WeeklySummary}}`, "spec.digest", "each is sent as its own mail"},
			{"a digest with an invalid name", `{spec: {digest: "No name"}}`, "spec.digest", "should match"},
			{"a warning without a deadline", `{spec: {deadline: null}}`, "spec.deadline", "is required for the kinds that warn of an end"},
			{"a digest with a name that is too long", `{spec: {digest: ` + longText(254) + `}}`, "spec.digest", "may not be more than 253"},
			{"inputs that are not strings", `{spec: {inputs: {count: 1}}}`, "spec.inputs.count", "must be of type string"},
			{"too many inputs", `{spec: {inputs: {` + repeatItems(65, `i%d: a`) + `}}}`, "spec.inputs", "at most 64"},
		},
		mutable: []edit{{name: "a label", patch: `{metadata: {labels: {a: b}}}`}},
		immutable: []edit{
			{"another recipient", newRecipient(`email: b@c.d`), "spec", "cannot be changed"},
			{"other inputs", `{spec: {inputs: {owner: b}}}`, "spec", "cannot be changed"},
		},
		status: []edit{
			{"an unknown phase", `{status: {phase: Lost}}`, "status.phase", `"Pending", "Sending", "Sent", "Failed", "Superseded"`},
			{"a negative number of attempts", `{status: {attempts: -1}}`, "status.attempts", "greater than or equal to 0"},
			{"a negative sequence", `{status: {sequence: -1}}`, "status.sequence", "greater than or equal to 0"},
			{"an invalid sending time", `{status: {sentAt: today}}`, "status.sentAt", "date-time"},
			{"an error that is too long", `{status: {lastError: ` + longText(1025) + `}}`, "status.lastError", "may not be more than 1024"},
		},
	}
}

func usageRecordTable() table {
	return table{
		kind: "UsageRecord",
		rejected: []edit{
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"an unknown field", `{spec: {year: 2026}}`, "spec.year", "unknown field"},
			{"another name", `{metadata: {name: thesis-mueller}}`, "metadata.name", "must be <project>-<month>"},
			{"the name of another month", `{metadata: {name: thesis-mueller-2026-11}}`, "metadata.name", "must be <project>-<month>"},
			{"no project", `{spec: {project: null}}`, "spec.project", "Required value"},
			{"a project with capitals", `{spec: {project: Thesis}}`, "spec.project", "should match"},
			{"a project with a name that is too long", `{spec: {project: ` + longText(64) + `}}`, "spec.project", "may not be more than 63"},
			{"an empty project", `{spec: {project: ""}}`, "spec.project", "at least 1 chars"},
			{"a project with a number as its UID", `{spec: {projectUID: 1}}`, "spec.projectUID", "must be of type string"},
			{"no month", `{spec: {month: null}}`, "spec.month", "Required value"},
			{"a month that is too long", `{spec: {month: "2026-10-1"}}`, "spec.month", "may not be more than 7"},
			{"the 13th month", `{metadata: {name: thesis-mueller-2026-13}, spec: {month: 2026-13}}`, "spec.month", "must be a month, YYYY-MM, such as 2026-10"},
			{"month zero", `{metadata: {name: thesis-mueller-2026-00}, spec: {month: 2026-00}}`, "spec.month", "must be a month, YYYY-MM, such as 2026-10"},
			{"a month of one digit", `{metadata: {name: thesis-mueller-2026-1}, spec: {month: 2026-1}}`, "spec.month", "must be a month, YYYY-MM, such as 2026-10"},
		},
		mutable: []edit{{name: "a label", patch: `{metadata: {labels: {a: b}}}`}},
		immutable: []edit{
			{"another project UID", `{spec: {projectUID: other}}`, "spec", "another month has another record"},
		},
		status: []edit{
			{"negative usage", `{status: {gpuMilliHours: -1}}`, "status.gpuMilliHours", "greater than or equal to 0"},
			{"an entry twice", `{status: {entries: [{user: a, workloadType: train, nodePool: b, gpuMilliSeconds: 1}, {user: a, workloadType: train, nodePool: b, gpuMilliSeconds: 2}]}}`, "status.entries[1]", "Duplicate value"},
			{"an entry of an unknown type", `{status: {entries: [{user: a, workloadType: batch, nodePool: b, gpuMilliSeconds: 1}]}}`, "status.entries[0].workloadType", `"train", "interactive", "inference"`},
			{"an entry with negative usage", `{status: {entries: [{user: a, workloadType: train, nodePool: b, gpuMilliSeconds: -1}]}}`, "status.entries[0].gpuMilliSeconds", "greater than or equal to 0"},
			{"a workload recorded twice", `{status: {accounted: [{clock: a, until: "2026-10-02T07:00:00Z"}, {clock: a, until: "2026-10-02T08:00:00Z"}]}}`, "status.accounted[1]", "Duplicate value"},
		},
	}
}

func extensionTable() table {
	const (
		project = `target: {apiVersion: sluice.dev/v1alpha1, kind: Project, name: thesis-mueller}`
		target  = "must be a workload for the action Extend, and a Project of sluice.dev/v1alpha1 for Renew and Delete"
	)
	return table{
		kind: "Extension",
		allowed: []edit{
			{name: "a renewal", patch: `{spec: {action: Renew, by: null, ` + project + `}}`},
			{name: "a renewal on behalf of an owner", patch: `{spec: {action: Renew, by: null, onBehalfOf: anna@example.org, ` + project + `}}`},
			{name: "a deletion", patch: `{spec: {action: Delete, by: null, ` + project + `}}`},
			{name: "a workload of a kind called Project", patch: `{spec: {target: {apiVersion: example.org/v1, kind: Project}}}`},
			{name: "a reason of several lines", patch: `{spec: {reason: "a\nb"}}`},
		},
		rejected: []edit{
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"an unknown field", `{spec: {until: tomorrow}}`, "spec.until", "unknown field"},
			{"no target", `{spec: {target: null}}`, "spec.target", "Required value"},
			{"a target without a version", `{spec: {target: {apiVersion: null}}}`, "spec.target.apiVersion", "Required value"},
			{"a target without a kind", `{spec: {target: {kind: null}}}`, "spec.target.kind", "Required value"},
			{"a target with an empty name", `{spec: {target: {name: ""}}}`, "spec.target.name", "at least 1 chars"},
			{"a target of an empty version", `{spec: {target: {apiVersion: ""}}}`, "spec.target.apiVersion", "at least 1 chars"},
			{"a target of a version that is too long", `{spec: {target: {apiVersion: ` + longText(318) + `}}}`, "spec.target.apiVersion", "may not be more than 317"},
			{"a target of an empty kind", `{spec: {target: {kind: ""}}}`, "spec.target.kind", "at least 1 chars"},
			{"a target of a kind that is too long", `{spec: {target: {kind: ` + longText(64) + `}}}`, "spec.target.kind", "may not be more than 63"},
			{"a target with a name that is too long", `{spec: {target: {name: ` + longText(254) + `}}}`, "spec.target.name", "may not be more than 253"},
			{"the extension of a project", `{spec: {` + project + `}}`, "spec.target", target},
			{"the renewal of a workload", `{spec: {action: Renew, by: null}}`, "spec.target", target},
			{"the deletion of a workload", `{spec: {action: Delete, by: null}}`, "spec.target", target},
			{"no action", `{spec: {action: null}}`, "spec.action", "Required value"},
			{"an unknown action", `{spec: {action: Stop}}`, "spec.action", `"Extend", "Renew", "Delete"`},
			{"an extension without a duration", `{spec: {by: null}}`, "spec.by", "is required for the action Extend"},
			{"a renewal with a duration", `{spec: {action: Renew, ` + project + `}}`, "spec.by", "is for the action Extend only; it is Renew here"},
			{"an extension on behalf of an owner", `{spec: {onBehalfOf: anna@example.org}}`, "spec.onBehalfOf", "is for the action Renew only; it is Extend here"},
			{"a renewal on behalf of a name", `{spec: {action: Renew, by: null, onBehalfOf: Anna, ` + project + `}}`, "spec.onBehalfOf", address},
			{"an extension by zero", `{spec: {by: 0h}}`, "spec.by", "longer than zero"},
			{"an extension by a negative duration", `{spec: {by: -24h}}`, "spec.by", duration},
			{"an extension with a duration that is too long", `{spec: {by: 0000000000000000000000001h}}`, "spec.by", "may not be more than 24"},
			{"an extension in months", `{spec: {by: P1M}}`, "spec.by", duration},
			{"no reason", `{spec: {reason: null}}`, "spec.reason", "Required value"},
			{"an empty reason", `{spec: {reason: "  "}}`, "spec.reason", "should match"},
			{"a reason that is too long", `{spec: {reason: ` + longText(501) + `}}`, "spec.reason", "may not be more than 500"},
		},
		mutable: []edit{
			{name: "a label", patch: `{metadata: {labels: {a: b}}}`},
		},
		immutable: []edit{
			{"another duration", `{spec: {by: 240h}}`, "spec", "cannot be changed; create another Extension"},
			{"another target", `{spec: {target: {name: other}}}`, "spec", "cannot be changed; create another Extension"},
			{"another reason", `{spec: {reason: b}}`, "spec", "cannot be changed; create another Extension"},
		},
		status: []edit{
			{"an unknown decision", `{status: {decision: Maybe}}`, "status.decision", `"Approved", "Denied"`},
			{"another decision", `{status: {decision: Denied}}`, "status.decision", "a decision stands"},
			{"the decision removed", `{status: {decision: null}}`, "status.decision", "a decision stands"},
			{"the status removed", `{status: null}`, "status", "a decision stands"},
			{"a message that is too long", `{status: {message: ` + longText(501) + `}}`, "status.message", "may not be more than 500"},
		},
	}
}

func policyTable() table {
	const builtIn = "the name of a built-in policy, such as core.gpu; core.project and core.quota cannot be replaced"
	return table{
		kind: "Policy",
		allowed: []edit{
			{name: "only required fields", patch: `{spec: {enforcement: null, match: null, parameters: null, replaces: null}}`},
			{name: "null parameters", patch: `{spec: {parameters: {maxGPUs: null, nested: null}}}`},
			{name: "the name of a built-in policy", patch: `{metadata: {name: core.nodepool}}`},
			{name: "a long source", patch: `{spec: {rego: ` + longText(262144) + `}}`},
			{name: "an exemption", patch: exempting(`{projects: [a], names: ["train-*"], reason: b, ` + exemptionEnd + `}`)},
			{name: "a library", patch: libraryWith("rego")},
		},
		rejected: slices.Concat([]edit{
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"an unknown field", `{spec: {template: x}}`, "spec.template", "unknown field"},
			{"an unknown enforcement", `{spec: {enforcement: deny}}`, "spec.enforcement", `"Deny", "Warn", "DryRun"`},
			{"a match that is a string", `{spec: {match: all}}`, "spec.match", "must be of type object"},
			{"an unknown field to match", `{spec: {match: {namespaces: [a]}}}`, "spec.match.namespaces", "unknown field"},
			{"departments that are not a list", `{spec: {match: {departments: h2}}}`, "spec.match.departments", "must be of type array"},
			{"a department with an empty name", `{spec: {match: {departments: [""]}}}`, "spec.match.departments[0]", "at least 1 chars"},
			{"a department with a name that is too long", `{spec: {match: {departments: [` + longText(64) + `]}}}`, "spec.match.departments[0]", "may not be more than 63"},
			{"too many departments", `{spec: {match: {departments: [` + repeatItems(257, "d%d") + `]}}}`, "spec.match.departments", "at most 256 items"},
			{"a department twice", `{spec: {match: {departments: [a, a]}}}`, "spec.match.departments[1]", "Duplicate value"},
			{"a project with a name that is too long", `{spec: {match: {projects: [` + longText(64) + `]}}}`, "spec.match.projects[0]", "may not be more than 63"},
			{"a project with an empty name", `{spec: {match: {projects: [""]}}}`, "spec.match.projects[0]", "at least 1 chars"},
			{"too many projects", `{spec: {match: {projects: [` + repeatItems(1025, "p%d") + `]}}}`, "spec.match.projects", "at most 1024 items"},
			{"a project twice", `{spec: {match: {projects: [a, a]}}}`, "spec.match.projects[1]", "Duplicate value"},
			{"a kind as a resource", `{spec: {match: {kinds: [pods]}}}`, "spec.match.kinds[0]", "should match"},
			{"a kind with a version", `{spec: {match: {kinds: [batch/v1.Job]}}}`, "spec.match.kinds[0]", "should match"},
			{"a kind that is too long", `{spec: {match: {kinds: [K` + longText(317) + `]}}}`, "spec.match.kinds[0]", "may not be more than 317"},
			{"too many kinds", `{spec: {match: {kinds: [` + repeatItems(65, "K%d") + `]}}}`, "spec.match.kinds", "at most 64 items"},
			{"a kind twice", `{spec: {match: {kinds: [Pod, Pod]}}}`, "spec.match.kinds[1]", "Duplicate value"},
			{"an unknown operation", `{spec: {match: {operations: [DELETE]}}}`, "spec.match.operations[0]", `"CREATE", "UPDATE"`},
			{"an operation twice", `{spec: {match: {operations: [CREATE, CREATE]}}}`, "spec.match.operations[1]", "Duplicate value"},
			{"parameters that are not an object", `{spec: {parameters: [1]}}`, "spec.parameters", "must be of type object"},
			{"a schema of parameters that is not an object", `{spec: {parametersSchema: [1]}}`, "spec.parametersSchema", "must be of type object"},
			{"replaces a policy that cannot be replaced", `{spec: {replaces: core.quota}}`, "spec.replaces", builtIn},
			{"replaces another policy that cannot be replaced", `{spec: {replaces: core.project}}`, "spec.replaces", builtIn},
			{"replaces a policy that is not built in", `{spec: {replaces: interactive-at-most-one-gpu}}`, "spec.replaces", builtIn},
			{"replaces an empty name", `{spec: {replaces: ""}}`, "spec.replaces", builtIn},
			{"replaces a policy with a name that is too long", `{spec: {replaces: core.` + longText(60) + `}}`, "spec.replaces", "may not be more than 63"},
			{"no source", `{spec: {rego: null}}`, "spec.rego", "Required value"},
			{"an empty source", `{spec: {rego: ""}}`, "spec.rego", "at least 1 chars"},
			{"a source that is too long", `{spec: {rego: ` + longText(262145) + `}}`, "spec.rego", "may not be more than 262144"},
		}, excludeEdits(), libraryEdits(), exemptionEdits()),
		mutable: []edit{
			{name: "another source", patch: `{spec: {rego: package other}}`},
		},
		immutable: []edit{
			{"another type", libraryWith("rego"), "spec.type", "cannot be changed: create another object"},
		},
		status: []edit{
			{"a negative number of violations", `{status: {violations: -1}}`, "status.violations", "greater than or equal to 0"},
			{"an error without a message", `{status: {errors: [{line: 1}]}}`, "status.errors[0].message", "Required value"},
		},
	}
}
