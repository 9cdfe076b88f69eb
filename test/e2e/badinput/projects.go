// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import "slices"

func owner(fields string) string { return `{spec: {owners: [{` + fields + `}]}}` }

func projects() table {
	return table{
		kind: "Project",
		allowed: slices.Concat(allowedQuotas, allowedResources, []edit{
			{name: "the least", patch: `{spec: {namespace: null, members: null, nodePools: null, resources: null, podSecurity: null, workloads: null, validFrom: null, hold: null, exempt: null}}`},
			{name: "the longest name", patch: `{metadata: {name: ` + long(63) + `}}`},
			{name: "the name of a system namespace, with another namespace", patch: `{metadata: {name: default}}`},
			{name: "an owner with an apostrophe", patch: owner(`name: Pat O'Brien, email: "pat.o'brien@example.org"`)},
			{name: "an owner whom Kubernetes does not know", patch: owner(`name: A, email: a@b.c`)},
		}),
		refused: slices.Concat(refusedQuotas, refusedResources, refusedMembers, refusedLimits, []edit{
			{"a name too long for a namespace", `{metadata: {name: ` + long(64) + `}}`, "metadata.name", "at most 63 characters"},
			{"a name with a dot", `{metadata: {name: thesis.mueller}}`, "metadata.name", "DNS label"},
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"a rule of its own for oversubscription", `{spec: {oversubscription: Allow}}`, "spec.oversubscription", "unknown field"},
			{"an unknown field", `{spec: {owner: anna}}`, "spec.owner", "unknown field"},
			{"no department", `{spec: {department: null}}`, "spec.department", "Required value"},
			{"an empty department", `{spec: {department: ""}}`, "spec.department", "at least 1 chars"},
			{"a department with a name that is too long", `{spec: {department: ` + long(64) + `}}`, "spec.department", "may not be more than 63"},
			{"a department with capitals", `{spec: {department: H2}}`, "spec.department", "should match"},
			{"a namespace that is none", `{spec: {namespace: Thesis_Mueller}}`, "spec.namespace", "should match"},
			{"an empty namespace", `{spec: {namespace: ""}}`, "spec.namespace", "at least 1 chars"},
			{"a namespace that is too long", `{spec: {namespace: ` + long(64) + `}}`, "spec.namespace", "may not be more than 63"},
			{"the namespace default", `{spec: {namespace: default}}`, "spec.namespace", "default, sluice-system and kube-* cannot be a project's"},
			{"the namespace kube-system", `{spec: {namespace: kube-system}}`, "spec.namespace", "default, sluice-system and kube-* cannot be a project's"},
			{"Sluice's own namespace", `{spec: {namespace: sluice-system}}`, "spec.namespace", "default, sluice-system and kube-* cannot be a project's"},
			{"a name that is a system namespace's", `{metadata: {name: kube-public}, spec: {namespace: null}}`, "metadata.name", "choose another, or set spec.namespace"},
			{"the name default", `{metadata: {name: default}, spec: {namespace: null}}`, "metadata.name", "choose another, or set spec.namespace"},

			{"nobody who answers for it", `{spec: {owners: []}}`, "spec.owners", "at least 1 items"},
			{"no owners", `{spec: {owners: null}}`, "spec.owners", "Required value"},
			{"too many owners", `{spec: {owners: [` + list(21, `{name: a, email: a%d@b.c}`) + `]}}`, "spec.owners", "at most 20 items"},
			{"an owner who mutes what asks for a decision", owner(`name: a, email: a@b.c, mute: [ProjectConfirm]`), "spec.owners[0].mute[0]", `"QuotaThreshold"`},
			{"an owner twice", `{spec: {owners: [{name: a, email: a@b.c}, {name: b, email: a@b.c}]}}`, "spec.owners[1]", "Duplicate value"},
			{"an owner without a name", owner(`email: a@b.c`), "spec.owners[0].name", "Required value"},
			{"an owner with a header in the name", owner(`name: "A\r\nBcc: d@e.f", email: a@b.c`), "spec.owners[0].name", "should match"},
			{"an owner without an address", owner(`name: A, user: a@b.c`), "spec.owners[0].email", "Required value"},
			{"an owner with a header in the address", owner(`name: A, email: "a@b.c\r\nBcc: d@e.f"`), "spec.owners[0].email", address},
			{"an owner with a control character in the user's name", owner(`name: A, email: a@b.c, user: "a\tb"`), "spec.owners[0].user", "should match"},

			{"an owner with an empty user's name", owner(`name: A, email: a@b.c, user: ""`), "spec.owners[0].user", "at least 1 chars"},
			{"an owner with too long a user's name", owner(`name: A, email: a@b.c, user: ` + long(255)), "spec.owners[0].user", "may not be more than 254"},
			{"a validity from a day that is none", `{spec: {validFrom: 2026-02-30}}`, "spec.validFrom", "YYYY-MM-DD"},
			{"a validity from the 13th month", `{spec: {validFrom: 2026-13-01}}`, "spec.validFrom", "YYYY-MM-DD"},
			{"a validity from an instant", `{spec: {validFrom: "2026-10-01T00:00:00Z"}}`, "spec.validFrom", "may not be more than 10"},
			{"a hold without an object", `{spec: {hold: true}}`, "spec.hold", "must be of type object"},
			{"a hold without a reason", `{spec: {hold: {reason: null}}}`, "spec.hold.reason", "Required value"},
			{"a hold for no reason", `{spec: {hold: {reason: " "}}}`, "spec.hold.reason", "should match"},
			{"a hold for an empty reason", `{spec: {hold: {reason: ""}}}`, "spec.hold.reason", "at least 1 chars"},
			{"a hold for too long a reason", `{spec: {hold: {reason: ` + long(501) + `}}}`, "spec.hold.reason", "may not be more than 500"},
			{"a hold until a day that is none", `{spec: {hold: {until: 31.12.2026}}}`, "spec.hold.until", "YYYY-MM-DD"},
			{"an exemption in a word", `{spec: {exempt: always}}`, "spec.exempt", "must be of type object"},
			{"an exemption without a reason", `{spec: {exempt: {reason: null}}}`, "spec.exempt.reason", "Required value"},
			{"an exemption for too long a reason", `{spec: {exempt: {reason: ` + long(501) + `}}}`, "spec.exempt.reason", "may not be more than 500"},
			{"an exemption for no reason", `{spec: {exempt: {reason: "\n"}}}`, "spec.exempt.reason", "should match"},
			{"an exemption until some time", `{spec: {exempt: {until: later}}}`, "spec.exempt.until", "YYYY-MM-DD"},
		}),
		thawed: []edit{
			{name: "another department", patch: `{spec: {department: h2-research}}`},
			{name: "other people, pools and limits", patch: `{spec: {owners: [{name: B, email: b@c.d}], members: null, nodePools: null, resources: null, podSecurity: null, workloads: null, validFrom: null, hold: null, exempt: null}}`},
		},
		frozen: []edit{
			{"another namespace", `{spec: {namespace: other}}`, "spec.namespace", "cannot be changed, added or taken away after creation"},
			{"no namespace any more", `{spec: {namespace: null}}`, "spec.namespace", "cannot be changed, added or taken away after creation"},
		},
		status: []edit{
			{"an unknown phase", `{status: {phase: Renewed}}`, "status.phase", `"Active", "Expiring", "Expired", "Suspended", "PendingDeletion", "Deleting"`},
			{"an expiry that is no instant", `{status: {expiresAt: 2027-04-02}}`, "status.expiresAt", "date-time"},
			{"a namespace of an unknown origin", `{status: {namespace: {origin: Stolen}}}`, "status.namespace.origin", `"Made", "Adopted"`},
			{"a namespace without an identity", `{status: {namespace: {uid: null}}}`, "status.namespace.uid", "Required value"},
			{"fewer periods than none", `{status: {periods: -1}}`, "status.periods", "greater than or equal to 0"},
			{"a next step without a time", `{status: {next: {at: null}}}`, "status.next.at", "Required value"},
		},
	}
}
