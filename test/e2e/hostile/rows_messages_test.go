// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

// No text of a user writes a header of a mail or moves the cursor of a terminal.
var _ = attacks(
	injected("an owner's name with a header", dean, create("Project", `{spec: {owners: [{name: "Eve\r\nBcc: eve@example.org", email: owner@example.org}]}}`), "spec.owners[0].name"),
	injected("an owner's name with an escape sequence", dean, create("Project", `{spec: {owners: [{name: "Eve\u001b[2J", email: owner@example.org}]}}`), "spec.owners[0].name"),
	injected("an owner's name with a line separator", dean, create("Project", `{spec: {owners: [{name: "Eve\u2028x", email: owner@example.org}]}}`), "spec.owners[0].name"),
	injected("an owner's name written backwards", dean, create("Project", `{spec: {owners: [{name: "Eve\u202etxe", email: owner@example.org}]}}`), "spec.owners[0].name"),
	injected("an owner's name with an invisible character", dean, create("Project", `{spec: {owners: [{name: "Ann\u200ba", email: owner@example.org}]}}`), "spec.owners[0].name"),
	injected("an owner's user with an invisible character", dean,
		create("Project", `{spec: {owners: [{name: Eve, email: owner@example.org, user: "anna\u200d"}]}}`), "spec.owners[0].user"),
	injected("a member's name with an invisible character", dean,
		create("Project", `{spec: {members: [{kind: User, name: "eve\u2060", role: viewer}]}}`), "spec.members[0].name"),
	row{
		class: messages, name: "an owner's name with the joiner of Persian", allowed: true, roles: []role{dean},
		attack: create("Project", `{spec: {owners: [{name: "\u0645\u06cc\u200c\u062e", email: owner@example.org}]}}`),
	},
	injected("an address with a header", dean, create("Project", `{spec: {owners: [{name: Eve, email: "eve@example.org\r\nBcc: x@example.org"}]}}`), "spec.owners[0].email"),
	injected("an address with two recipients", dean, create("Project", `{spec: {owners: [{name: Eve, email: "eve@example.org,all@example.org"}]}}`), "spec.owners[0].email"),
	injected("a member's name with an escape sequence", dean,
		create("Project", `{spec: {members: [{kind: User, name: "eve\u001b[2J", role: viewer}]}}`), "spec.members[0].name"),
)

func injected(name string, by role, request attempt, want string) row {
	return row{class: messages, name: name, roles: []role{by}, attack: request, want: want}
}
