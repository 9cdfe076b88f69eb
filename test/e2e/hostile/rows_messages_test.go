// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

// No text of a user writes a header of a mail or moves the cursor of a terminal.
var _ = attacks(
	injected("an owner's name with a header", dean, create("Project", `{spec: {owners: [{name: "Eve\r\nBcc: eve@example.org", email: owner@example.org}]}}`), "spec.owners[0].name"),
	injected("an owner's name with an escape sequence", dean, create("Project", `{spec: {owners: [{name: "Eve\u001b[2J", email: owner@example.org}]}}`), "spec.owners[0].name"),
	injected("an owner's name with a line separator", dean, create("Project", `{spec: {owners: [{name: "Eve\u2028x", email: owner@example.org}]}}`), "spec.owners[0].name"),
	injected("an address with a header", dean, create("Project", `{spec: {owners: [{name: Eve, email: "eve@example.org\r\nBcc: x@example.org"}]}}`), "spec.owners[0].email"),
	injected("an address with two recipients", dean, create("Project", `{spec: {owners: [{name: Eve, email: "eve@example.org,all@example.org"}]}}`), "spec.owners[0].email"),
	injected("a member's name with an escape sequence", dean,
		create("Project", `{spec: {members: [{kind: User, name: "eve\u001b[2J", role: viewer}]}}`), "spec.members[0].name"),
)

func injected(name string, by role, request attempt, want string) row {
	return row{class: messages, name: name, roles: []role{by}, attack: request, want: want}
}
