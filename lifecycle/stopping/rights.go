// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"sluice.dev/api/workload/kinds"
)

// Rights are what a [Stopper] needs, one rule for each group of the API: to read
// and patch each kind that it can stop, to find and delete pods and say so in
// their status, and to look up what a kind that it does not know can do. For kinds of
// that sort the right to patch them is the administrator's to give.
func Rights() []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{definitionKind.Group}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get"}},
	}
	patched := map[string][]string{}
	var groups []string
	for _, kind := range kinds.All() {
		if !stoppedByPatch(kind) {
			continue
		}
		if _, seen := patched[kind.Group]; !seen {
			groups = append(groups, kind.Group)
		}
		patched[kind.Group] = append(patched[kind.Group], kind.Resource)
	}
	slices.SortFunc(groups, strings.Compare)
	for _, group := range groups {
		slices.Sort(patched[group])
		verbs := []string{"get", "patch"}
		if group == kinds.WorkloadGroup {
			verbs = []string{"get", "list", "patch"} // found by what they hold
		}
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: patched[group], Verbs: verbs})
	}
	return rules
}

func stoppedByPatch(kind kinds.Kind) bool {
	return slices.Contains([]kinds.Form{kinds.FormField, kinds.FormMark, kinds.FormReplicas}, kind.Verb.Form)
}
