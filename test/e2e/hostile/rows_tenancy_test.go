// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

// A namespace becomes a project's by a Project alone.
var _ = attacks(
	namespaceWrite("another project's label", patch(ownNamespace, `{"metadata":{"labels":{"sluice.dev/project":"{neighbor}"}}}`), onlyByProject),
	namespaceWrite("the project label removed", patch(ownNamespace, `{"metadata":{"labels":{"sluice.dev/project":null}}}`), onlyByProject),
	namespaceWrite("the project label removed, through the status", patchStatus(ownNamespace, `{"metadata":{"labels":{"sluice.dev/project":null}}}`), onlyByProject),
	namespaceWrite("the annotation created-for", patch(ownNamespace, `{"metadata":{"annotations":{"sluice.dev/created-for":"u"}}}`), "written by Sluice alone"),
	namespaceWrite("a namespace created with a project label",
		apply(`{apiVersion: v1, kind: Namespace, metadata: {name: forged, labels: {sluice.dev/project: "{neighbor}"}}}`), onlyByProject),
	row{
		class: tenancy, name: "a weaker Pod Security of the namespace", roles: []role{clusterAdmin}, rbac: users,
		attack: patch(ownNamespace, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`), want: "spec.podSecurity",
	},
	row{
		class: tenancy, name: "a user's label on the namespace", allowed: true, roles: []role{namespaceAdmin},
		attack: patch(ownNamespace, `{"metadata":{"labels":{"team":"ours"}}}`),
	},
	row{
		class: quotas, name: "a quota of the user's own", allowed: true, roles: []role{namespaceAdmin},
		attack: apply(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: own}, spec: {hard: {configmaps: "100"}}}`),
	},
)

const onlyByProject = "a namespace becomes a project's by a Project"

var ownNamespace = named("Namespace", "{namespace}")

func namespaceWrite(name string, request attempt, want string) row {
	return row{class: tenancy, name: name, roles: []role{namespaceAdmin}, rbac: append([]role{dean, owner, manager, viewer}, users...), attack: request, want: want,
		uncontrolled: "the namespace is Sluice's"}
}
