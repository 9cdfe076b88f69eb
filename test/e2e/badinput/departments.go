// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import (
	"slices"
	"strings"
)

func contact(fields string) string { return `{spec: {contacts: [{` + fields + `}]}}` }

func terms(fields string) string { return `{spec: {projects: {` + fields + `}}}` }

func holiday(fields string) string { return `{spec: {holidays: [{` + fields + `}]}}` }

func told(fields string) string { return `{spec: {notices: {` + fields + `}}}` }

const (
	address = "must be one plain address such as anna.mueller@example.org"
	zone    = "a time zone in the IANA database, such as Europe/Berlin or UTC"
)

func departments() table {
	const (
		period = "such as P6M, P1Y6M, P2W or P30D"
		cron   = "five fields (minute, hour, day of month, month, day of week), such as 0 8 * * *"
	)
	return table{
		kind: "Department",
		allowed: slices.Concat(allowedQuotas, allowedResources, []edit{
			{name: "the least", patch: `{spec: {displayName: h2, contacts: null, nodePools: null, oversubscription: null, resources: null, podSecurity: null, members: null, workloads: null, projects: null, extensions: null, holidays: null, notices: null}}`},
			{name: "no more promised than there is", patch: `{spec: {oversubscription: Refuse}}`},
			{name: "the defaults for oversubscription and Pod Security", patch: `{spec: {oversubscription: null, podSecurity: null}}`},
			{name: "no Pod Security at all", patch: `{spec: {podSecurity: privileged}}`},
			{name: "projects without an end", patch: terms(`validity: null, suspendAfter: null, deleteAfter: null`)},
			{name: "a validity, and the defaults for the rest", patch: terms(`validity: P1Y, atExpiry: null, suspendAfter: null, deleteAfter: null`)},
			{name: "confirmation, with a short wait", patch: terms(`atExpiry: Confirm, suspendAfter: null, deleteAfter: 7d`)},
			{name: "a mixed period", patch: terms(`validity: P1Y6M2W3D`)},
			{name: "no self-service", patch: `{spec: {extensions: {selfService: 0}}}`},
			{name: "a zone of three parts", patch: told(`timeZone: America/Argentina/Buenos_Aires`)},
			{name: "a digest on weekdays by name", patch: told(`digest: "30 7,19 * JAN-NOV MON-FRI"`)},
			{name: "no digest", patch: told(`digest: null`)},
			{name: "a holiday on a leap day", patch: holiday(`from: 2028-02-29, to: 2028-02-29`)},
		}),
		refused: slices.Concat(refusedQuotas, refusedResources, refusedMembers, refusedLimits, []edit{
			{"a name with capitals", `{metadata: {name: H2}}`, "metadata.name", "lower-case letters, digits and hyphens"},
			{"a name too long for a label", `{metadata: {name: ` + long(64) + `}}`, "metadata.name", "at most 63 characters"},
			{"a name with a dot", `{metadata: {name: h2.students}}`, "metadata.name", "DNS label"},
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"an unknown field", `{spec: {quota: 1}}`, "spec.quota", "unknown field"},
			{"a display name with a line break", `{spec: {displayName: "a\r\nBcc: b@c"}}`, "spec.displayName", "should match"},
			{"an empty display name", `{spec: {displayName: ""}}`, "spec.displayName", "at least 1 chars"},
			{"a display name that is too long", `{spec: {displayName: ` + long(201) + `}}`, "spec.displayName", "may not be more than 200"},

			{"oversubscription in another word", `{spec: {oversubscription: Never}}`, "spec.oversubscription", `"Refuse", "Allow"`},
			{"oversubscription that is a truth", `{spec: {oversubscription: true}}`, "spec.oversubscription", "must be of type string"},

			{"contacts that are no list", `{spec: {contacts: a@b.c}}`, "spec.contacts", "must be of type array"},
			{"too many contacts", `{spec: {contacts: [` + list(21, `{name: a, email: a%d@b.c}`) + `]}}`, "spec.contacts", "at most 20 items"},
			{"a contact twice", `{spec: {contacts: [{name: a, email: a@b.c}, {name: b, email: a@b.c}]}}`, "spec.contacts[1]", "Duplicate value"},
			{"a contact without a name", contact(`email: a@b.c`), "spec.contacts[0].name", "Required value"},
			{"a contact with an empty name", contact(`name: "", email: a@b.c`), "spec.contacts[0].name", "at least 1 chars"},
			{"a contact with a line break in the name", contact(`name: "a\nb", email: a@b.c`), "spec.contacts[0].name", "should match"},
			{"a contact with a line separator in the name", contact(`name: "a\u2028b", email: a@b.c`), "spec.contacts[0].name", "should match"},
			{"a contact who mutes what warns of an end", contact(`name: a, email: a@b.c, mute: [WorkloadEnding]`), "spec.contacts[0].mute[0]", `"QuotaThreshold"`},
			{"a contact who mutes one kind twice", contact(`name: a, email: a@b.c, mute: [OverShare, OverShare]`), "spec.contacts[0].mute[1]", "Duplicate value"},
			{"a contact with a name that is too long", contact(`name: ` + long(201) + `, email: a@b.c`), "spec.contacts[0].name", "may not be more than 200"},
			{"a contact without an address", contact(`name: a`), "spec.contacts[0].email", "Required value"},
			{"an address with a header in it", contact(`name: a, email: "a@b.c\r\nBcc: d@e.f"`), "spec.contacts[0].email", address},
			{"an address with a line break at its end", contact(`name: a, email: "a@b.c\n"`), "spec.contacts[0].email", address},
			{"an address with a name", contact(`name: a, email: "Anna <a@b.c>"`), "spec.contacts[0].email", address},
			{"an address that would add a parameter to SMTP", contact(`name: a, email: "v@x> NOTIFY=NEVER ORCPT=rfc822;z@z"`), "spec.contacts[0].email", address},
			{"an address without an at", contact(`name: a, email: example.org`), "spec.contacts[0].email", address},
			{"an address with two", contact(`name: a, email: a@b@c.d`), "spec.contacts[0].email", address},
			{"two addresses", contact(`name: a, email: "a@b.c,d@e.f"`), "spec.contacts[0].email", address},
			{"an address with a space", contact(`name: a, email: "a b@c.d"`), "spec.contacts[0].email", address},
			{"an address with an umlaut", contact(`name: a, email: "jörg@b.c"`), "spec.contacts[0].email", address},
			{"an address with two dots", contact(`name: a, email: a..b@c.d`), "spec.contacts[0].email", address},
			{"an address that ends in a hyphen", contact(`name: a, email: a@b-`), "spec.contacts[0].email", address},
			{"an address that is too short", contact(`name: a, email: a@`), "spec.contacts[0].email", "at least 3 chars"},
			{"an address that is too long", contact(`name: a, email: ` + long(250) + `@b.cd`), "spec.contacts[0].email", "may not be more than 254"},

			{"terms that are no object", `{spec: {projects: P6M}}`, "spec.projects", "must be of type object"},
			{"a validity without its P", terms(`validity: 6M`), "spec.projects.validity", period},
			{"a validity in hours", terms(`validity: PT6H`), "spec.projects.validity", period},
			{"a validity of nothing", terms(`validity: P0M`), "spec.projects.validity", "longer than zero"},
			{"a validity of a bare P", terms(`validity: P`), "spec.projects.validity", period},
			{"a validity that is a fraction", terms(`validity: P0.5Y`), "spec.projects.validity", period},
			{"a validity below 0", terms(`validity: P-6M`), "spec.projects.validity", period},
			{"a validity as a duration", terms(`validity: 180d`), "spec.projects.validity", period},
			{"a validity of ages", terms(`validity: P100Y`), "spec.projects.validity", period},
			{"an unknown action", terms(`atExpiry: Delete`), "spec.projects.atExpiry", `"Expire", "Confirm"`},
			{"a suspension in months", terms(`suspendAfter: P1M`), "spec.projects.suspendAfter", duration},
			{"a deletion at once", terms(`deleteAfter: 0d`), "spec.projects.deleteAfter", "longer than zero"},
			{"a deletion with the suspension", terms(`suspendAfter: 30d`), "spec.projects.deleteAfter", "must be longer than suspendAfter, 30d"},
			{"a deletion before the suspension", terms(`deleteAfter: 335h59m, suspendAfter: 14d`), "spec.projects.deleteAfter", "must be longer than suspendAfter, 14d"},
			{"a deletion before the default suspension", terms(`deleteAfter: 7d, suspendAfter: null`), "spec.projects.deleteAfter", "must be longer than suspendAfter, 14d"},

			{"extensions that are no object", `{spec: {extensions: 2}}`, "spec.extensions", "must be of type object"},
			{"self-service below 0", `{spec: {extensions: {selfService: -1}}}`, "spec.extensions.selfService", "greater than or equal to 0"},
			{"self-service without end", `{spec: {extensions: {selfService: 101}}}`, "spec.extensions.selfService", "less than or equal to 100"},
			{"an extension by nothing", `{spec: {extensions: {each: 0h}}}`, "spec.extensions.each", "longer than zero"},
			{"an unknown unit of the window", `{spec: {extensions: {window: 1 month}}}`, "spec.extensions.window", duration},
			{"no approvers", `{spec: {extensions: {approvers: []}}}`, "spec.extensions.approvers", "at least 1 items"},
			{"an approver twice", `{spec: {extensions: {approvers: [editor, editor]}}}`, "spec.extensions.approvers[1]", "Duplicate value"},
			{"an unknown approver", `{spec: {extensions: {approvers: [viewer]}}}`, "spec.extensions.approvers[0]", `"system-administrator", "department-administrator", "editor", "research-manager"`},

			{"holidays that are no list", `{spec: {holidays: 2026-12-24}}`, "spec.holidays", "must be of type array"},
			{"too many holidays", `{spec: {holidays: [` + list(51, `{from: "20%[1]02d-01-01", to: "20%[1]02d-01-01"}`) + `]}}`, "spec.holidays", "at most 50 items"},
			{"a holiday twice", `{spec: {holidays: [{from: 2026-12-24, to: 2026-12-24}, {from: 2026-12-24, to: 2026-12-26}]}}`, "spec.holidays[1]", "Duplicate value"},
			{"a holiday without a beginning", holiday(`to: 2026-12-24`), "spec.holidays[0].from", "Required value"},
			{"a holiday without an end", holiday(`from: 2026-12-24`), "spec.holidays[0].to", "Required value"},
			{"a holiday in the 13th month", holiday(`from: 2026-13-01, to: 2027-01-01`), "spec.holidays[0].from", "YYYY-MM-DD"},
			{"a holiday on 30 February", holiday(`from: 2026-02-28, to: 2026-02-30`), "spec.holidays[0].to", "YYYY-MM-DD"},
			{"a holiday on 29 February of no leap year", holiday(`from: 2026-02-28, to: 2026-02-29`), "spec.holidays[0].to", "YYYY-MM-DD"},
			{"a holiday the German way", holiday(`from: 24.12.2026, to: 26.12.2026`), "spec.holidays[0].from", "YYYY-MM-DD"},
			{"a holiday at a time of day", holiday(`from: 2026-12-24T00:00:00Z, to: 2026-12-24`), "spec.holidays[0].from", "may not be more than 10"},
			{"a holiday that ends before it begins", holiday(`from: 2026-12-24, to: 2026-12-23`), "spec.holidays[0].to", "must not be before from"},

			{"notices that are no object", `{spec: {notices: de}}`, "spec.notices", "must be of type object"},
			{"an unknown language", told(`language: fr`), "spec.notices.language", `"de", "en"`},
			{"no leads of a project", told(`projectExpiry: []`), "spec.notices.projectExpiry", "at least 1 items"},
			{"too many leads of a project", told(`projectExpiry: [` + list(11, `1%dd`) + `]`), "spec.notices.projectExpiry", "at most 10 items"},
			{"a lead of a project twice", told(`projectExpiry: [7d, 7d]`), "spec.notices.projectExpiry[1]", "Duplicate value"},
			{"a lead of nothing", told(`projectExpiry: [0d]`), "spec.notices.projectExpiry[0]", "longer than zero"},
			{"no leads of a workload", told(`workloadEnd: []`), "spec.notices.workloadEnd", "at least 1 items"},
			{"a lead of a workload twice", told(`workloadEnd: [4h, 30m, 4h]`), "spec.notices.workloadEnd[2]", "Duplicate value"},
			{"a lead of a workload in an unknown unit", told(`workloadEnd: [24h, 1w]`), "spec.notices.workloadEnd[1]", duration},
			{"a lead below 0", told(`workloadEnd: [-24h]`), "spec.notices.workloadEnd[0]", duration},
			{"a digest of four fields", told(`digest: "0 8 * *"`), "spec.notices.digest", cron},
			{"a digest of six", told(`digest: "0 0 8 * * *"`), "spec.notices.digest", cron},
			{"a digest that is too long", told(`digest: "0 8 * * 1` + strings.Repeat(",1", 50) + `"`), "spec.notices.digest", "may not be more than 100"},
			{"a digest in words", told(`digest: "@daily"`), "spec.notices.digest", cron},
			{"a digest with a zone", told(`digest: "CRON_TZ=UTC 0 8 * *"`), "spec.notices.digest", cron},
			{"a digest with a line break", told(`digest: "0 8 * *\n*"`), "spec.notices.digest", cron},
			{"a zone with a path out", told(`timeZone: ../../etc/passwd`), "spec.notices.timeZone", zone},
			{"a zone with spaces", told(`timeZone: "Europe / Berlin"`), "spec.notices.timeZone", zone},
			{"the zone of whatever machine", told(`timeZone: Local`), "spec.notices.timeZone", zone},
			{"a zone that is too long", told(`timeZone: ` + long(65)), "spec.notices.timeZone", "may not be more than 64"},
			{"an empty zone", told(`timeZone: ""`), "spec.notices.timeZone", zone},
		}),
		status: []edit{
			{"a count that is none", `{status: {projects: two}}`, "status.projects", "must be of type integer"},
			{"GPUs that are none", `{status: {gpu: {allocated: many}}}`, "status.gpu.allocated", "should match"},
			{"a pool twice", `{status: {nodePools: [{name: a}, {name: a}]}}`, "status.nodePools[1]", "Duplicate value"},
		},
	}
}
