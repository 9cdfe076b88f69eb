// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import "sluice.dev/api/v1alpha1"

// What the webhook's replicas count is in the status of policies.
var _ = attacks(
	row{
		class: identity, name: "the counts of a replica of the webhook forged",
		roles: []role{l2, l1, editor, serviceAccount, engineer, manager, viewer, owner, dean, namespaceAdmin, outsider},
		attack: inNamespace(v1alpha1.SystemNamespace,
			apply("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: sluice-webhook-forged}, spec: {holderIdentity: forged}}")),
		want: `cannot create resource "leases"`,
	},
	row{
		class: identity, name: "a version of a policy forged", roles: []role{l1, editor, manager, dean, outsider},
		attack: inNamespace(v1alpha1.SystemNamespace, apply("{apiVersion: apps/v1, kind: ControllerRevision, revision: 1, data: {}, metadata: {name: guard-0-1}}")),
		want:   `cannot create resource "controllerrevisions"`,
	},
)
