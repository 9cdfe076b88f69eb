// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"sluice.dev/api/workloadkind"
)

// DeletionRules returns the permissions to delete what the namespace of a deleted project holds beside its
// volumes, one rule for each API group: to list and delete the workloads of each known kind, and the
// ServiceAccounts. DaemonSets, which belong to the cluster, are only listed: the owner of a volume claim can
// be one.
func DeletionRules() []rbacv1.PolicyRule {
	resources := map[string][]string{"": {"serviceaccounts"}}
	for _, kind := range workloadkind.All() {
		if kind.StopAction.Method != workloadkind.StopNever {
			resources[kind.Group] = append(resources[kind.Group], kind.Resource)
		}
	}
	groups := make([]string, 0, len(resources))
	for group := range resources {
		groups = append(groups, group)
	}
	slices.Sort(groups)
	rules := make([]rbacv1.PolicyRule, 0, len(groups)+1)
	for _, group := range groups {
		slices.Sort(resources[group])
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources[group], Verbs: []string{"list", "delete"}})
	}
	return append(rules, rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"list"}})
}
