// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"strings"
)

// policyVersions is the class of attacks on the versions of policies that are kept in the cluster.
const policyVersions class = "versions of policies"

const (
	// webhookAccount is the identity of the webhook, which only reads the versions.
	webhookAccount role = "system:serviceaccount:sluice-system:webhook"

	onlyLifecycle = "only lifecycle writes and deletes the revisions of policies; change the Policy instead"
)

// A forged version of a policy would replace the one that refuses pods.
var _ = attacks(
	forgedVersion("a version that refuses nothing", `{engineVersion: v1, spec: {rego: "package guard"}}`),
	forgedVersion("a version without a source", `{spec: {}}`),
	forgedVersion("a huge version", `{spec: {rego: "`+strings.Repeat("a", 1<<20)+`"}}`),
	row{
		class: policyVersions, name: "a version, as the webhook", roles: []role{webhookAccount}, attack: revisionWith(versionLabels, "{}"),
		want: `cannot create resource "controllerrevisions"`, uncontrolled: "the webhook has no right to create any revision",
	},
	row{
		class: policyVersions, name: "a revision of a StatefulSet beside them", allowed: true, roles: []role{clusterAdmin},
		attack: revisionWith("{app: database}", "{spec: {template: {}}}"),
	},
)

const versionLabels = "{app.kubernetes.io/managed-by: sluice, app.kubernetes.io/component: policy-revision}"

func forgedVersion(name, data string) row {
	return row{
		class: policyVersions, name: name, roles: []role{clusterAdmin, namespaceAdmin}, rbac: []role{l1, editor, manager, dean, outsider},
		attack: revisionWith(versionLabels, data), want: onlyLifecycle, control: revisionWith("{app: database}", data),
	}
}

// revisionWith creates a ControllerRevision beside those of policies.
func revisionWith(labels, data string) attempt {
	return apply(fmt.Sprintf("{apiVersion: apps/v1, kind: ControllerRevision, revision: 1, data: %s,"+
		" metadata: {name: guard-0-1, namespace: sluice-system, labels: %s}}", data, labels))
}
