// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import "sluice.dev/api/v1alpha1"

// The identities of Sluice's own components.
const (
	webhookComponent   role = "system:serviceaccount:" + v1alpha1.SystemNamespace + ":webhook"
	lifecycleComponent role = "system:serviceaccount:" + v1alpha1.SystemNamespace + ":lifecycle"
)

// The reports of the webhook's replicas decide what the status of policies says. Only the webhook writes them, and it writes no other Lease.
var _ = attacks(
	row{
		class: identity, name: "the report of a replica of the webhook forged",
		roles:  []role{l2, l1, editor, serviceAccount, engineer, manager, viewer, owner, dean, namespaceAdmin, outsider},
		attack: leaseNamed("sluice-webhook-forged"), want: `cannot create resource "leases"`,
	},
	row{
		class: identity, name: "the report of a replica of the webhook forged with the right to write Leases",
		roles:  []role{clusterAdmin, lifecycleComponent},
		attack: leaseNamed("sluice-webhook-forged"), want: "only the webhook may write them", control: leaseNamed("another"),
	},
	row{
		class: identity, name: "another Lease written by the webhook", roles: []role{webhookComponent},
		attack: leaseNamed("another"), want: "only the webhook may write them, and no others", control: leaseNamed("sluice-webhook-a"),
	},
)

func leaseNamed(name string) attempt {
	return inNamespace(v1alpha1.SystemNamespace,
		apply("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: "+name+"}, spec: {holderIdentity: forged}}"))
}
