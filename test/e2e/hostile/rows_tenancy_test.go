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
	namespaceWrite("the mark of a former project", patch(ownNamespace, `{"metadata":{"labels":{"sluice.dev/former-project":"{project}"}}}`), onlyByProject),
	row{
		class: tenancy, name: "a weaker Pod Security of the namespace", roles: []role{clusterAdmin}, rbac: users,
		attack: patch(ownNamespace, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`), want: "spec.podSecurity",
	},
	row{
		class: tenancy, name: "a user's label on the namespace", allowed: true, roles: []role{namespaceAdmin},
		attack: patch(ownNamespace, `{"metadata":{"labels":{"team":"ours"}}}`),
	},
	row{class: quotas, name: "a quota of the user's own", allowed: true, roles: []role{namespaceAdmin}, attack: ownQuota},
	row{class: quotas, name: "a quota of a member's own", roles: append([]role{dean, owner, manager, viewer}, users...), attack: ownQuota, want: byRBAC},
)

var ownQuota = apply(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: own}, spec: {hard: {configmaps: "100"}}}`)

const onlyByProject = "a namespace becomes a project's by a Project"

var ownNamespace = named("Namespace", "{namespace}")

func namespaceWrite(name string, request attempt, want string) row {
	return row{
		class: tenancy, name: name, roles: []role{namespaceAdmin}, rbac: append([]role{dean, owner, manager, viewer}, users...), attack: request, want: want,
		uncontrolled: "the namespace is Sluice's",
	}
}

// A project names its own department's quotas and a namespace of its own.
var _ = attacks(
	row{
		class: extensions, name: "the requester's own extension approved", roles: []role{l2, l1, engineer, viewer, owner, neighbor, outsider},
		attack: patchStatus(named("Extension", "any"), `{"status":{"decision":"Approved"}}`), want: "cannot patch resource \"extensions/status\"",
	},
	renewal("a renewal by a member", "", "is no owner of project {project}; ask an owner (Owner)",
		l2, l1, editor, engineer, manager, serviceAccount),
	renewal("a renewal by a member for an owner", forOwner, "is no owner of project {project}; ask an owner (Owner)",
		l2, l1, editor, engineer, manager, serviceAccount),
	renewal("a renewal by users without rights", "", "cannot create resource \"extensions\"", viewer, neighbor, outsider, neighborsOwner, otherDean),
	renewal("a renewal by an administrator of another department for an owner", forOwner, "cannot create resource \"extensions\"", otherDean),
	renewal("a renewal in an owner's name", `{metadata: {annotations: {sluice.dev/created-by: owner@hostile.example}}}`, "is no owner of project", l2, editor),
	renewal("a renewal by an administrator for a member", `{spec: {onBehalfOf: "{colleague}"}}`, "must be the address of an owner of project {project}", dean),
	renewal("a renewal by an administrator without an owner", "", "spec.onBehalfOf: Required value", dean),
	renewal("a renewal of a neighbor's project", `{spec: {target: {name: "{neighbor}"}}}`, "must be {project}, the project of namespace {namespace}", owner),
	renewal("a renewal by an owner for another owner", forOwner, "omit it", owner),
	renewal("a renewal of a project that does not expire", "", "do not expire", owner),
	row{
		class: extensions, name: "a renewal approved", roles: []role{l2, l1, engineer, viewer, owner, neighbor, outsider, neighborsOwner, otherDean},
		attack: patchStatus(named("Extension", "any"), `{"status":{"decision":"Approved","decidedBy":"{user}"}}`), want: "cannot patch resource \"extensions/status\"",
	},
	row{
		class: extensions, name: "the expiry of a project forged", roles: []role{l2, l1, editor, manager, owner, dean, neighbor, outsider, namespaceAdmin},
		attack: patchStatus(attacked, `{"status":{"phase":"Expiring","expiry":{"selfServiceRenewals":0}}}`), want: "cannot patch resource \"projects/status\"",
	},
	row{
		class: names, name: "a project named like a namespace of the system", roles: []role{dean},
		attack: create("Project", "{metadata: {name: kube-evil}}"), want: "kube-* belong to the system",
	},
	row{
		class: names, name: "a project named like a component's namespace", roles: []role{dean},
		attack: create("Project", "{metadata: {name: metallb-system}}"), want: "*-system is for components of the cluster",
	},
	row{
		class: names, name: "a project in the namespace of a component", roles: []role{dean},
		attack: create("Project", "{spec: {namespace: cert-manager}}"), want: "cert-manager is for components of the cluster",
	},
	asDean("a project of another department", create("Project", `{spec: {department: "{otherDepartment}"}}`), "does not administer department {otherDepartment}"),
	asDean("a project in a namespace of the system", create("Project", `{spec: {namespace: kube-system}}`), "kube-* cannot be a project's"),
	asDean("a project in a namespace of the GPU operator", create("Project", `{spec: {namespace: gpu-operator}}`), "belongs to the system"),
	asDean("a project in another project's namespace", create("Project", `{spec: {namespace: "{elsewhere}"}}`), "one namespace has one project"),
	asDean("a project with more than the department's limit",
		create("Project", `{spec: {nodePools: [{name: direct, gpu: {guaranteed: "0", limit: "1001"}}]}}`), "spec.nodePools[0].gpu.limit"),
	asDean("another department's project changed", patch(named("Project", elsewhere), noteBody), "does not administer department {otherDepartment}"),
	asDean("another department's project deleted", remove(named("Project", elsewhere)), "does not administer"),
	asDean("a project moved to another department", patch(named("Project", "{project}"), `{"spec":{"department":"{otherDepartment}"}}`),
		"does not administer department {otherDepartment}"),
	asDean("the department's quota", patch(named("Department", faculty), `{"spec":{"nodePools":[]}}`), "cannot patch resource \"departments\""),
	asDean("a department", apply(`{apiVersion: sluice.dev/v1alpha1, kind: Department, metadata: {name: mine}, spec: {}}`), "cannot create resource \"departments\""),
	asManager("a member with more rights than a manager's", memberAdded("editor"), "more than you may grant"),
	asManager("another manager", memberAdded("research-manager"), "more than you may grant"),
	asManager("all members removed", patch(attacked, `{"spec":{"members":null}}`), "removes the role editor"),
	asManager("another department", patch(attacked, `{"spec":{"department":"{otherDepartment}"}}`), "spec.department"),
	asManager("another owner", patch(attacked, `[{"op":"replace","path":"/spec/owners/0/user","value":"{user}"}]`), "spec.owners"),
	asManager("an exemption", patch(attacked, `{"spec":{"exempt":{"reason":"I say so"}}}`), "spec.exempt"),
	asManager("a hold", patch(attacked, `{"spec":{"hold":{"reason":"mine"}}}`), "spec.hold"),
	asManager("privileged pods", patch(attacked, `{"spec":{"podSecurity":"privileged"}}`), "spec.podSecurity"),
	asManager("an annotation", patch(attacked, `{"metadata":{"annotations":{"sluice.dev/note":"x"}}}`), "metadata.annotations"),
	asManager("a label", patch(attacked, `{"metadata":{"labels":{"a":"b"}}}`), "metadata.labels"),
	asManager("an owner reference, by which garbage collection would delete it",
		patch(attacked, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"gone","uid":"gone"}]}}`), "metadata.ownerReferences"),
	asManager("a finalizer", patch(attacked, `{"metadata":{"finalizers":["example.org/mine"]}}`), "metadata.finalizers"),
	asManager("more than the department's limit", patch(attacked, `{"spec":{"nodePools":[{"name":"direct","gpu":{"guaranteed":"0","limit":"1001"}}]}}`), "spec.nodePools[0].gpu.limit"),
	asManager("a longer time limit", patch(attacked, `{"spec":{"workloads":{"train":{"maxRuntime":"1000h"}}}}`), "maxRuntime"),
	row{class: tenancy, name: "a manager: another project", roles: []role{manager}, attack: patch(named("Project", neighborhood), noteBody), want: "cannot patch resource \"projects\""},
	row{class: tenancy, name: "a manager adds a researcher", allowed: true, roles: []role{manager}, attack: memberAdded("l2-researcher")},
	row{
		class: identity, name: "a hold in the name of another administrator", roles: []role{dean},
		attack:   create("Project", `{metadata: {annotations: {sluice.dev/held-by: other@example.org}}, spec: {hold: {reason: fire}}}`),
		harmless: has(`metadata.annotations.sluice\.dev/held-by`, "{user}"),
	},
	row{
		class: identity, name: "the author of an exemption that does not exist", roles: []role{dean},
		attack:   create("Project", `{metadata: {annotations: {sluice.dev/exempted-by: other@example.org}}}`),
		harmless: lacks("other@example.org"),
	},
	row{class: tenancy, name: "an administrator creates a project", allowed: true, roles: []role{dean}, attack: create("Project", "")},
)

var attacked = named("Project", "{project}")

// The owner of another project, and the administrator of another department.
const (
	neighborsOwner role = "owner@" + neighborhood
	otherDean      role = "stranger@hostile.example"
)

const forOwner = `{spec: {onBehalfOf: owner@example.org}}`

// renewal is a row of a renewal. The attacked project does not expire.
func renewal(name, fragment, want string, roles ...role) row {
	return row{
		class: extensions, name: name, roles: roles, attack: create("Extension", fragment), want: want,
		uncontrolled: "the project does not expire, so that its owner cannot renew it either",
	}
}

func memberAdded(role string) attempt {
	return patch(attacked, `[{"op":"add","path":"/spec/members/-","value":{"kind":"User","namespace":"","name":"a-guest","role":"`+role+`"}}]`)
}

func asDean(name string, request attempt, want string) row {
	return row{class: tenancy, name: "an administrator: " + name, roles: []role{dean}, attack: request, want: want}
}

// asManager is a row of a manager of the project. The control adds a member.
func asManager(name string, request attempt, want string) row {
	return row{class: tenancy, name: "a manager: " + name, roles: []role{manager}, attack: request, want: want, control: memberAdded("viewer")}
}
