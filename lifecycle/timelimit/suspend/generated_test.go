// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/timelimit/suspend"
	"sluice.dev/manifests"
)

// update is set by `make generate`.
var update = flag.Bool("update", false, "write the ClusterRole and the table of the documentation")

const (
	roleFile             = "../../../manifests/base/rbac/stopping.yaml"
	docFile              = "../../../docs/researcher/stopping.md"
	tableBegin, tableEnd = "<!-- The table is written by `make generate`. -->\n", "<!-- end of the table -->\n"
)

// The installed ClusterRole has the permissions that package workloadkind needs.
func TestGeneratedRole(t *testing.T) {
	compareFile(t, roleFile, func(string) string { return roleYAML(suspend.PolicyRules()) })
}

// The built manifests contain them unchanged.
func TestInstalledRoleMatchesRules(t *testing.T) {
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetKind() != "ClusterRole" || object.GetName() != roleName {
			continue
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &role, true); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(suspend.PolicyRules(), role.Rules); diff != "" {
			t.Errorf("(-table +manifests)\n%s", diff)
		}
		return
	}
	t.Errorf("no ClusterRole %s in %s", roleName, manifests.Base)
}

// The permissions are limited to get, list and patch, and to delete pods.
func TestRoleIsMinimal(t *testing.T) {
	for _, rule := range suspend.PolicyRules() {
		for _, verb := range rule.Verbs {
			switch verb {
			case "get", "list", "patch":
			case "delete":
				if !slices.Equal(rule.Resources, []string{"pods"}) {
					t.Errorf("delete %v", rule.Resources)
				}
			default:
				t.Errorf("%s %v", verb, rule.Resources)
			}
		}
		for _, resource := range rule.Resources {
			if slices.Contains(rule.Verbs, "patch") && (resource == "daemonsets" || resource == "pods" || resource == "customresourcedefinitions") {
				t.Errorf("patch %s", resource)
			}
		}
	}
}

// The documentation contains the generated table.
func TestGeneratedTable(t *testing.T) {
	compareFile(t, docFile, func(now string) string {
		before, rest, ok := strings.Cut(now, tableBegin)
		_, after, closed := strings.Cut(rest, tableEnd)
		if !ok || !closed {
			t.Fatalf("%s lacks the two comments that enclose the table", docFile)
		}
		return before + tableBegin + renderTable() + tableEnd + after
	})
}

func compareFile(t *testing.T, path string, want func(now string) string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	text := want(string(raw))
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(text, string(raw)); diff != "" {
		t.Errorf("%s is not up to date with package workloadkind; run `make generate` (-table +file)\n%s", path, diff)
	}
}

const roleName = "sluice-lifecycle-stopping"

func roleYAML(rules []rbacv1.PolicyRule) string {
	var b strings.Builder
	b.WriteString(`# The permissions to stop root workloads: to get and patch them, to delete bare pods and the
# pods of a StatefulSet that hangs at 0 replicas. To list them: a suspended project also stops
# workloads that have no pods, and its renewal releases them. Kinds that are not installed need
# no change.
# Written by ` + "`make generate`" + ` from api/workloadkind.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: ` + roleName + `
rules:
`)
	for _, rule := range rules {
		fmt.Fprintf(&b, "  - apiGroups: [%s]\n", strings.Join(quoteAll(rule.APIGroups), ", "))
		fmt.Fprintf(&b, "    resources: [%s]\n", strings.Join(rule.Resources, ", "))
		fmt.Fprintf(&b, "    verbs: [%s]\n", strings.Join(rule.Verbs, ", "))
	}
	b.WriteString(`---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: ` + roleName + `
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: ` + roleName + `
subjects:
  - kind: ServiceAccount
    name: lifecycle
    namespace: sluice-system
`)
	return b.String()
}

func quoteAll(groups []string) []string {
	list := slices.Clone(groups)
	for i, group := range list {
		if group == "" {
			list[i] = `""`
		}
	}
	return list
}

// renderTable returns the table of the documentation, in Markdown.
func renderTable() string {
	var b strings.Builder
	b.WriteString("\n| kind | how it is stopped | how it is started again |\n|---|---|---|\n")
	for _, kind := range workloadkind.All() {
		name := kind.Kind
		if kind.Group != "" {
			name += " (`" + kind.Group + "`)"
		}
		start := "create it again"
		if command := kind.StartCommand("NAMESPACE", "NAME", 1); command != "" {
			start = "`" + strings.Replace(command, "--replicas=1", "--replicas=N", 1) + "`"
		} else if kind.StopAction.Method == workloadkind.StopNever {
			start = ""
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, kind.DescribeStop(), start)
	}
	return b.String() + "\n"
}
