// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import (
	"slices"
	"strings"
)

func newContact(fields string) string { return `{spec: {contacts: [{` + fields + `}]}}` }

func newTerms(fields string) string { return `{spec: {projects: {` + fields + `}}}` }

func newRenewals(fields string) string { return newTerms(`renewals: {` + fields + `}`) }

func newHoliday(fields string) string { return `{spec: {holidays: [{` + fields + `}]}}` }

func newNoticeTerms(fields string) string { return `{spec: {notices: {` + fields + `}}}` }

const (
	address = "must be one plain address such as anna.mueller@example.org"
	zone    = "a time zone in the IANA database, such as Europe/Berlin or UTC"
)

func departmentTable() table {
	const (
		period = "such as P6M, P1Y6M, P2W or P30D"
		cron   = "five fields (minute, hour, day of month, month, day of week), such as 0 8 * * *"
	)
	return table{
		kind: "Department",
		allowed: slices.Concat(allowedQuotas, allowedResources, []edit{
			{name: "only required fields", patch: `{spec: {displayName: h2, contacts: null, nodePools: null, oversubscription: null, resources: null, podSecurity: null, members: null, workloads: null, projects: null, extensions: null, holidays: null, notices: null}}`},
			{name: "no oversubscription", patch: `{spec: {oversubscription: Deny}}`},
			{name: "the defaults for oversubscription and Pod Security", patch: `{spec: {oversubscription: null, podSecurity: null}}`},
			{name: "Pod Security privileged", patch: `{spec: {podSecurity: privileged}}`},
			{name: "projects without an end", patch: newTerms(`validity: null, suspendAfter: null, deleteAfter: null`)},
			{name: "a validity, and the defaults for the rest", patch: newTerms(`validity: P1Y, atExpiry: null, suspendAfter: null, deleteAfter: null`)},
			{name: "confirmation, with an early deletion", patch: newTerms(`atExpiry: Confirm, suspendAfter: null, deleteAfter: 7d`)},
			{name: "a mixed period", patch: newTerms(`validity: P1Y6M2W3D`)},
			{name: "no self-service", patch: `{spec: {extensions: {selfService: 0}}}`},
			{name: "a zone of three parts", patch: newNoticeTerms(`timeZone: America/Argentina/Buenos_Aires`)},
			{name: "a digest on weekdays by name", patch: newNoticeTerms(`digest: "30 7,19 * JAN-NOV MON-FRI"`)},
			{name: "a null digest", patch: newNoticeTerms(`digest: null`)},
			{name: "a holiday on a leap day", patch: newHoliday(`from: 2028-02-29, to: 2028-02-29`)},
		}),
		rejected: slices.Concat(rejectedQuotas, rejectedResources, rejectedMembers, rejectedLimits, rejectedServices, []edit{
			{"a name with capitals", `{metadata: {name: H2}}`, "metadata.name", "lower-case letters, digits and hyphens"},
			{"a name too long for a label", `{metadata: {name: ` + longText(64) + `}}`, "metadata.name", "at most 63 characters"},
			{"a name with a dot", `{metadata: {name: h2.students}}`, "metadata.name", "DNS label"},
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"an unknown field", `{spec: {quota: 1}}`, "spec.quota", "unknown field"},
			{"a display name with a line break", `{spec: {displayName: "a\r\nBcc: b@c"}}`, "spec.displayName", "should match"},
			{"an empty display name", `{spec: {displayName: ""}}`, "spec.displayName", "at least 1 chars"},
			{"a display name that is too long", `{spec: {displayName: ` + longText(201) + `}}`, "spec.displayName", "may not be more than 200"},

			{"an unknown oversubscription", `{spec: {oversubscription: Never}}`, "spec.oversubscription", `"Deny", "Allow"`},
			{"oversubscription that is a boolean", `{spec: {oversubscription: true}}`, "spec.oversubscription", "must be of type string"},

			{"contacts that are not a list", `{spec: {contacts: a@b.c}}`, "spec.contacts", "must be of type array"},
			{"too many contacts", `{spec: {contacts: [` + repeatItems(21, `{name: a, email: a%d@b.c}`) + `]}}`, "spec.contacts", "at most 20 items"},
			{"a contact twice", `{spec: {contacts: [{name: a, email: a@b.c}, {name: b, email: a@b.c}]}}`, "spec.contacts[1]", "Duplicate value"},
			{"a contact without a name", newContact(`email: a@b.c`), "spec.contacts[0].name", "Required value"},
			{"a contact with an empty name", newContact(`name: "", email: a@b.c`), "spec.contacts[0].name", "at least 1 chars"},
			{"a contact with a line break in the name", newContact(`name: "a\nb", email: a@b.c`), "spec.contacts[0].name", "should match"},
			{"a contact with a line separator in the name", newContact(`name: "a\u2028b", email: a@b.c`), "spec.contacts[0].name", "should match"},
			{"a contact who mutes a warning of an end", newContact(`name: a, email: a@b.c, mute: [WorkloadEnding]`), "spec.contacts[0].mute[0]", `"QuotaThreshold"`},
			{"a contact who mutes one kind twice", newContact(`name: a, email: a@b.c, mute: [ShareExceeded, ShareExceeded]`), "spec.contacts[0].mute[1]", "Duplicate value"},
			{"a contact with a name that is too long", newContact(`name: ` + longText(201) + `, email: a@b.c`), "spec.contacts[0].name", "may not be more than 200"},
			{"a contact without an address", newContact(`name: a`), "spec.contacts[0].email", "Required value"},
			{"an address with a header in it", newContact(`name: a, email: "a@b.c\r\nBcc: d@e.f"`), "spec.contacts[0].email", address},
			{"an address with a line break at its end", newContact(`name: a, email: "a@b.c\n"`), "spec.contacts[0].email", address},
			{"an address with a name", newContact(`name: a, email: "Anna <a@b.c>"`), "spec.contacts[0].email", address},
			{"an address that would add a parameter to SMTP", newContact(`name: a, email: "v@x> NOTIFY=NEVER ORCPT=rfc822;z@z"`), "spec.contacts[0].email", address},
			{"an address without an at sign", newContact(`name: a, email: example.org`), "spec.contacts[0].email", address},
			{"an address with two at signs", newContact(`name: a, email: a@b@c.d`), "spec.contacts[0].email", address},
			{"two addresses", newContact(`name: a, email: "a@b.c,d@e.f"`), "spec.contacts[0].email", address},
			{"an address with a space", newContact(`name: a, email: "a b@c.d"`), "spec.contacts[0].email", address},
			{"an address with an umlaut", newContact(`name: a, email: "jörg@b.c"`), "spec.contacts[0].email", address},
			{"an address with two consecutive dots", newContact(`name: a, email: a..b@c.d`), "spec.contacts[0].email", address},
			{"an address that ends in a hyphen", newContact(`name: a, email: a@b-`), "spec.contacts[0].email", address},
			{"an address that is too short", newContact(`name: a, email: a@`), "spec.contacts[0].email", "at least 3 chars"},
			{"an address that is too long", newContact(`name: a, email: ` + longText(250) + `@b.cd`), "spec.contacts[0].email", "may not be more than 254"},

			{"terms that are not an object", `{spec: {projects: P6M}}`, "spec.projects", "must be of type object"},
			{"a validity without its P", newTerms(`validity: 6M`), "spec.projects.validity", period},
			{"a validity in hours", newTerms(`validity: PT6H`), "spec.projects.validity", period},
			{"a validity of zero", newTerms(`validity: P0M`), "spec.projects.validity", "longer than zero"},
			{"a validity of a bare P", newTerms(`validity: P`), "spec.projects.validity", period},
			{"a validity that is a fraction", newTerms(`validity: P0.5Y`), "spec.projects.validity", period},
			{"a validity below 0", newTerms(`validity: P-6M`), "spec.projects.validity", period},
			{"a validity as a duration", newTerms(`validity: 180d`), "spec.projects.validity", period},
			{"a validity above the maximum", newTerms(`validity: P100Y`), "spec.projects.validity", period},
			{"an unknown action", newTerms(`atExpiry: Delete`), "spec.projects.atExpiry", `"Expire", "Confirm"`},
			{"a suspension in months", newTerms(`suspendAfter: P1M`), "spec.projects.suspendAfter", duration},
			{"a deletion after zero days", newTerms(`deleteAfter: 0d`), "spec.projects.deleteAfter", "longer than zero"},
			{"a deletion with the suspension", newTerms(`suspendAfter: 30d`), "spec.projects.deleteAfter", "must be longer than suspendAfter, 30d"},
			{"a deletion before the suspension", newTerms(`deleteAfter: 335h59m, suspendAfter: 14d`), "spec.projects.deleteAfter", "must be longer than suspendAfter, 14d"},
			{"a deletion before the default suspension", newTerms(`deleteAfter: 7d, suspendAfter: null`), "spec.projects.deleteAfter", "must be longer than suspendAfter, 14d"},

			{"renewals that are not an object", newTerms(`renewals: 1`), "spec.projects.renewals", "must be of type object"},
			{"renewals without approval below 0", newRenewals(`selfService: -1`), "spec.projects.renewals.selfService", "greater than or equal to 0"},
			{"renewals without approval above the maximum", newRenewals(`selfService: 101`), "spec.projects.renewals.selfService", "less than or equal to 100"},
			{"no approvers of renewals", newRenewals(`approvers: []`), "spec.projects.renewals.approvers", "at least 1 items"},
			{"an approver of renewals twice", newRenewals(`approvers: [editor, editor]`), "spec.projects.renewals.approvers[1]", "Duplicate value"},
			{"an unknown approver of renewals", newRenewals(`approvers: [viewer]`), "spec.projects.renewals.approvers[0]", `"system-administrator", "department-administrator", "editor", "research-manager"`},

			{"extensions that are not an object", `{spec: {extensions: 2}}`, "spec.extensions", "must be of type object"},
			{"self-service below 0", `{spec: {extensions: {selfService: -1}}}`, "spec.extensions.selfService", "greater than or equal to 0"},
			{"self-service above the maximum", `{spec: {extensions: {selfService: 101}}}`, "spec.extensions.selfService", "less than or equal to 100"},
			{"an extension by zero", `{spec: {extensions: {maxDuration: 0h}}}`, "spec.extensions.maxDuration", "longer than zero"},
			{"an unknown unit of the window", `{spec: {extensions: {window: 1 month}}}`, "spec.extensions.window", duration},
			{"no approvers", `{spec: {extensions: {approvers: []}}}`, "spec.extensions.approvers", "at least 1 items"},
			{"an approver twice", `{spec: {extensions: {approvers: [editor, editor]}}}`, "spec.extensions.approvers[1]", "Duplicate value"},
			{"an unknown approver", `{spec: {extensions: {approvers: [viewer]}}}`, "spec.extensions.approvers[0]", `"system-administrator", "department-administrator", "editor", "research-manager"`},

			{"an activity that is not an object", `{spec: {activity: 5%}}`, "spec.activity", "must be of type object"},
			{"an activity with an unknown field", `{spec: {activity: {percentage: 5}}}`, "spec.activity.percentage", "unknown field"},
			{"an activity of nothing", `{spec: {activity: {percent: 0}}}`, "spec.activity.percent", "greater than or equal to 1"},
			{"an activity above the whole share", `{spec: {activity: {percent: 101}}}`, "spec.activity.percent", "less than or equal to 100"},
			{"an activity that is a fraction", `{spec: {activity: {percent: 2.5}}}`, "spec.activity.percent", "must be of type integer"},
			{"a window in an unknown unit", `{spec: {activity: {window: 5 minutes}}}`, "spec.activity.window", duration},
			{"a window that is too short", `{spec: {activity: {window: 29s}}}`, "spec.activity.window", "at least 30s and at most 1h"},
			{"a window that is too long", `{spec: {activity: {window: 60m1s}}}`, "spec.activity.window", "at least 30s and at most 1h"},

			{"holidays that are not a list", `{spec: {holidays: 2026-12-24}}`, "spec.holidays", "must be of type array"},
			{"too many holidays", `{spec: {holidays: [` + repeatItems(51, `{from: "20%[1]02d-01-01", to: "20%[1]02d-01-01"}`) + `]}}`, "spec.holidays", "at most 50 items"},
			{"a holiday twice", `{spec: {holidays: [{from: 2026-12-24, to: 2026-12-24}, {from: 2026-12-24, to: 2026-12-26}]}}`, "spec.holidays[1]", "Duplicate value"},
			{"a holiday without a beginning", newHoliday(`to: 2026-12-24`), "spec.holidays[0].from", "Required value"},
			{"a holiday without an end", newHoliday(`from: 2026-12-24`), "spec.holidays[0].to", "Required value"},
			{"a holiday in the 13th month", newHoliday(`from: 2026-13-01, to: 2027-01-01`), "spec.holidays[0].from", "YYYY-MM-DD"},
			{"a holiday on 30 February", newHoliday(`from: 2026-02-28, to: 2026-02-30`), "spec.holidays[0].to", "YYYY-MM-DD"},
			{"a holiday on 29 February outside a leap year", newHoliday(`from: 2026-02-28, to: 2026-02-29`), "spec.holidays[0].to", "YYYY-MM-DD"},
			{"a holiday in German date format", newHoliday(`from: 24.12.2026, to: 26.12.2026`), "spec.holidays[0].from", "YYYY-MM-DD"},
			{"a holiday with a time of day", newHoliday(`from: 2026-12-24T00:00:00Z, to: 2026-12-24`), "spec.holidays[0].from", "may not be more than 10"},
			{"a holiday that ends before it begins", newHoliday(`from: 2026-12-24, to: 2026-12-23`), "spec.holidays[0].to", "must not be before from"},

			{"notices that are not an object", `{spec: {notices: de}}`, "spec.notices", "must be of type object"},
			{"an unknown language", newNoticeTerms(`language: fr`), "spec.notices.language", `"de", "en"`},
			{"copies that are no boolean", newNoticeTerms(`copyOwners: sometimes`), "spec.notices.copyOwners", "must be of type boolean"},
			{"no leads for a project", newNoticeTerms(`projectExpiry: []`), "spec.notices.projectExpiry", "at least 1 items"},
			{"too many leads for a project", newNoticeTerms(`projectExpiry: [` + repeatItems(11, `1%dd`) + `]`), "spec.notices.projectExpiry", "at most 10 items"},
			{"a lead for a project twice", newNoticeTerms(`projectExpiry: [7d, 7d]`), "spec.notices.projectExpiry[1]", "Duplicate value"},
			{"a lead of zero", newNoticeTerms(`projectExpiry: [0d]`), "spec.notices.projectExpiry[0]", "longer than zero"},
			{"no leads for a workload", newNoticeTerms(`workloadEnd: []`), "spec.notices.workloadEnd", "at least 1 items"},
			{"a lead for a workload twice", newNoticeTerms(`workloadEnd: [4h, 30m, 4h]`), "spec.notices.workloadEnd[2]", "Duplicate value"},
			{"a lead for a workload in an unknown unit", newNoticeTerms(`workloadEnd: [24h, 1w]`), "spec.notices.workloadEnd[1]", duration},
			{"a lead below 0", newNoticeTerms(`workloadEnd: [-24h]`), "spec.notices.workloadEnd[0]", duration},
			{"a digest of four fields", newNoticeTerms(`digest: "0 8 * *"`), "spec.notices.digest", cron},
			{"a digest of six fields", newNoticeTerms(`digest: "0 0 8 * * *"`), "spec.notices.digest", cron},
			{"a digest that is too long", newNoticeTerms(`digest: "0 8 * * 1` + strings.Repeat(",1", 50) + `"`), "spec.notices.digest", "may not be more than 100"},
			{"a digest with a macro", newNoticeTerms(`digest: "@daily"`), "spec.notices.digest", cron},
			{"a digest with a zone", newNoticeTerms(`digest: "CRON_TZ=UTC 0 8 * *"`), "spec.notices.digest", cron},
			{"a digest with a line break", newNoticeTerms(`digest: "0 8 * *\n*"`), "spec.notices.digest", cron},
			{"a zone that is a path", newNoticeTerms(`timeZone: ../../etc/passwd`), "spec.notices.timeZone", zone},
			{"a zone with spaces", newNoticeTerms(`timeZone: "Europe / Berlin"`), "spec.notices.timeZone", zone},
			{"the zone of the local machine", newNoticeTerms(`timeZone: Local`), "spec.notices.timeZone", zone},
			{"a zone that is too long", newNoticeTerms(`timeZone: ` + longText(65)), "spec.notices.timeZone", "may not be more than 64"},
			{"an empty zone", newNoticeTerms(`timeZone: ""`), "spec.notices.timeZone", zone},
		}),
		status: []edit{
			{"an invalid count", `{status: {projects: two}}`, "status.projects", "must be of type integer"},
			{"an invalid number of GPUs", `{status: {gpu: {allocated: many}}}`, "status.gpu.allocated", "should match"},
			{"a pool twice", `{status: {nodePools: [{name: a}, {name: a}]}}`, "status.nodePools[1]", "Duplicate value"},
		},
	}
}

func newOwner(fields string) string { return `{spec: {owners: [{` + fields + `}]}}` }

func projectTable() table {
	return table{
		kind: "Project",
		allowed: slices.Concat(allowedQuotas, allowedResources, []edit{
			{name: "only required fields", patch: `{spec: {namespace: null, members: null, nodePools: null, resources: null, podSecurity: null, workloads: null, validFrom: null, hold: null, exempt: null}}`},
			{name: "the longest name", patch: `{metadata: {name: ` + longText(63) + `}}`},
			{name: "the name of a system namespace, with another namespace", patch: `{metadata: {name: default}}`},
			{name: "an owner with an apostrophe", patch: newOwner(`name: Pat O'Brien, email: "pat.o'brien@example.org"`)},
			{name: "an owner with a Persian name", patch: newOwner(`name: "\u0645\u06cc\u200c\u062e", email: a@b.c`)},
			{name: "an owner without a Kubernetes user", patch: newOwner(`name: A, email: a@b.c`)},
		}),
		rejected: slices.Concat(rejectedQuotas, rejectedResources, rejectedMembers, rejectedLimits, []edit{
			{"a name too long for a namespace", `{metadata: {name: ` + longText(64) + `}}`, "metadata.name", "at most 63 characters"},
			{"a name with a dot", `{metadata: {name: thesis.mueller}}`, "metadata.name", "DNS label"},
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"a project's oversubscription", `{spec: {oversubscription: Allow}}`, "spec.oversubscription", "unknown field"},
			{"an unknown field", `{spec: {owner: anna}}`, "spec.owner", "unknown field"},
			{"no department", `{spec: {department: null}}`, "spec.department", "Required value"},
			{"an empty department", `{spec: {department: ""}}`, "spec.department", "at least 1 chars"},
			{"a department with a name that is too long", `{spec: {department: ` + longText(64) + `}}`, "spec.department", "may not be more than 63"},
			{"a department with capitals", `{spec: {department: H2}}`, "spec.department", "should match"},
			{"an invalid namespace", `{spec: {namespace: Thesis_Mueller}}`, "spec.namespace", "should match"},
			{"an empty namespace", `{spec: {namespace: ""}}`, "spec.namespace", "at least 1 chars"},
			{"a namespace that is too long", `{spec: {namespace: ` + longText(64) + `}}`, "spec.namespace", "may not be more than 63"},
			{"the namespace default", `{spec: {namespace: default}}`, "spec.namespace", "default, sluice-agent, sluice-system and kube-* cannot be a project's"},
			{"the namespace kube-system", `{spec: {namespace: kube-system}}`, "spec.namespace", "default, sluice-agent, sluice-system and kube-* cannot be a project's"},
			{"Sluice's own namespace", `{spec: {namespace: sluice-system}}`, "spec.namespace", "default, sluice-agent, sluice-system and kube-* cannot be a project's"},
			{"the agent's namespace", `{spec: {namespace: sluice-agent}}`, "spec.namespace", "default, sluice-agent, sluice-system and kube-* cannot be a project's"},
			{"a name that is the agent's namespace", `{metadata: {name: sluice-agent}, spec: {namespace: null}}`, "metadata.name", "choose another, or set spec.namespace"},
			{"a name that is a system namespace's", `{metadata: {name: kube-public}, spec: {namespace: null}}`, "metadata.name", "choose another, or set spec.namespace"},
			{"the name default", `{metadata: {name: default}, spec: {namespace: null}}`, "metadata.name", "choose another, or set spec.namespace"},

			{"an empty list of owners", `{spec: {owners: []}}`, "spec.owners", "at least 1 items"},
			{"no owners", `{spec: {owners: null}}`, "spec.owners", "Required value"},
			{"too many owners", `{spec: {owners: [` + repeatItems(21, `{name: a, email: a%d@b.c}`) + `]}}`, "spec.owners", "at most 20 items"},
			{"an owner who mutes a request for a decision", newOwner(`name: a, email: a@b.c, mute: [ProjectConfirm]`), "spec.owners[0].mute[0]", `"QuotaThreshold"`},
			{"an owner twice", `{spec: {owners: [{name: a, email: a@b.c}, {name: b, email: a@b.c}]}}`, "spec.owners[1]", "Duplicate value"},
			{"an owner without a name", newOwner(`email: a@b.c`), "spec.owners[0].name", "Required value"},
			{"an owner with a header in the name", newOwner(`name: "A\r\nBcc: d@e.f", email: a@b.c`), "spec.owners[0].name", "should match"},
			{"an owner with an invisible character in the name", newOwner(`name: "A\u202eB", email: a@b.c`), "spec.owners[0].name", "should match"},
			{"an owner without an address", newOwner(`name: A, user: a@b.c`), "spec.owners[0].email", "Required value"},
			{"an owner with a header in the address", newOwner(`name: A, email: "a@b.c\r\nBcc: d@e.f"`), "spec.owners[0].email", address},
			{"an owner with a control character in the user name", newOwner(`name: A, email: a@b.c, user: "a\tb"`), "spec.owners[0].user", "should match"},

			{"an owner with an empty user name", newOwner(`name: A, email: a@b.c, user: ""`), "spec.owners[0].user", "at least 1 chars"},
			{"an owner with a user name that is too long", newOwner(`name: A, email: a@b.c, user: ` + longText(255)), "spec.owners[0].user", "may not be more than 254"},
			{"a validity from an invalid date", `{spec: {validFrom: 2026-02-30}}`, "spec.validFrom", "YYYY-MM-DD"},
			{"a validity from the 13th month", `{spec: {validFrom: 2026-13-01}}`, "spec.validFrom", "YYYY-MM-DD"},
			{"a validity from a time of day", `{spec: {validFrom: "2026-10-01T00:00:00Z"}}`, "spec.validFrom", "may not be more than 10"},
			{"a hold that is a boolean", `{spec: {hold: true}}`, "spec.hold", "must be of type object"},
			{"a hold without a reason", `{spec: {hold: {reason: null}}}`, "spec.hold.reason", "Required value"},
			{"a hold for a blank reason", `{spec: {hold: {reason: " "}}}`, "spec.hold.reason", "should match"},
			{"a hold for an empty reason", `{spec: {hold: {reason: ""}}}`, "spec.hold.reason", "at least 1 chars"},
			{"a hold for a reason that is too long", `{spec: {hold: {reason: ` + longText(501) + `}}}`, "spec.hold.reason", "may not be more than 500"},
			{"a hold until an invalid date", `{spec: {hold: {until: 31.12.2026}}}`, "spec.hold.until", "YYYY-MM-DD"},
			{"an exemption that is a string", `{spec: {exempt: always}}`, "spec.exempt", "must be of type object"},
			{"an exemption without a reason", `{spec: {exempt: {reason: null}}}`, "spec.exempt.reason", "Required value"},
			{"an exemption for a reason that is too long", `{spec: {exempt: {reason: ` + longText(501) + `}}}`, "spec.exempt.reason", "may not be more than 500"},
			{"an exemption for a blank reason", `{spec: {exempt: {reason: "\n"}}}`, "spec.exempt.reason", "should match"},
			{"an exemption until an invalid date", `{spec: {exempt: {until: later}}}`, "spec.exempt.until", "YYYY-MM-DD"},
		}),
		mutable: []edit{
			{name: "another department", patch: `{spec: {department: h2-research}}`},
			{name: "other owners, pools and limits", patch: `{spec: {owners: [{name: B, email: b@c.d}], members: null, nodePools: null, resources: null, podSecurity: null, workloads: null, validFrom: null, hold: null, exempt: null}}`},
		},
		immutable: []edit{
			{"another namespace", `{spec: {namespace: other}}`, "spec.namespace", "cannot be added, changed or removed after creation"},
			{"the namespace removed", `{spec: {namespace: null}}`, "spec.namespace", "cannot be added, changed or removed after creation"},
		},
		status: []edit{
			{"an unknown phase", `{status: {phase: Renewed}}`, "status.phase", `"Active", "Expiring", "Expired", "Suspended", "PendingDeletion", "Deleting"`},
			{"an invalid expiry time", `{status: {expiresAt: 2027-04-02}}`, "status.expiresAt", "date-time"},
			{"a namespace of an unknown origin", `{status: {namespace: {origin: Stolen}}}`, "status.namespace.origin", `"Created", "Adopted"`},
			{"a namespace without a UID", `{status: {namespace: {uid: null}}}`, "status.namespace.uid", "Required value"},
			{"a negative number of periods", `{status: {periods: -1}}`, "status.periods", "greater than or equal to 0"},
			{"a next step without a time", `{status: {next: {at: null}}}`, "status.next.at", "Required value"},
		},
	}
}
