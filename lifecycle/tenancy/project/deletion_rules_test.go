// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// update is set by `make generate`.
var update = flag.Bool("update", false, "write the ClusterRole")

const deletionRole = "../../../manifests/base/rbac/deletion.yaml"

// The installed ClusterRole has the permissions that a deletion needs, and none on volumes or secrets.
func TestGeneratedDeletionRole(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# The permissions to end the namespace of a deleted project that stays because of its volumes: to find
# its workloads, and those that own volume claims, and to delete the others; and to delete its
# ServiceAccounts, with which all their tokens end. Lifecycle may not delete volume claims or read
# Secrets. Kinds that are not installed need no change.
# Written by ` + "`make generate`" + ` from api/workloadkind.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: sluice-lifecycle-deletion
rules:
`)
	for _, rule := range DeletionRules() {
		group := rule.APIGroups[0]
		if group == "" {
			group = `""`
		}
		fmt.Fprintf(&b, "  - apiGroups: [%s]\n    resources: [%s]\n    verbs: [%s]\n",
			group, strings.Join(rule.Resources, ", "), strings.Join(rule.Verbs, ", "))
		for _, forbidden := range []string{"persistentvolumeclaims", "persistentvolumes", "secrets"} {
			if slices.Contains(rule.Resources, forbidden) {
				t.Errorf("the rules name %s", forbidden)
			}
		}
	}
	b.WriteString(`---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: sluice-lifecycle-deletion
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: sluice-lifecycle-deletion
subjects:
  - kind: ServiceAccount
    name: lifecycle
    namespace: sluice-system
`)
	if *update {
		if err := os.WriteFile(deletionRole, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(deletionRole)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(raw)); diff != "" {
		t.Errorf("%s is not up to date; run `make generate` (-rules +file)\n%s", deletionRole, diff)
	}
}
