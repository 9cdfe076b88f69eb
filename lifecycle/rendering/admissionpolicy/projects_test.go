// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"sluice.dev/api/v1alpha1"
)

// namedRights authorizes "verb resource name"; a right without a name is one to all.
type namedRights []string

func (r namedRights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	resource := strings.TrimSuffix(a.GetResource()+"/"+a.GetSubresource(), "/")
	for _, right := range []string{a.GetVerb() + " " + resource, a.GetVerb() + " " + resource + " " + a.GetName()} {
		if slices.Contains(r, right) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// denyClusterRequest returns the message with which one policy refuses a request; old is nil at a creation, object at
// a deletion.
func denyClusterRequest(t *testing.T, policy, userName string, rights namedRights, resource string, old, object *unstructured.Unstructured) string {
	t.Helper()
	p := loadSet(t, false).policies[policy]
	if p == nil {
		t.Fatalf("there is no policy %s", policy)
	}
	operation, present := admission.Create, object
	switch {
	case object == nil:
		operation, present = admission.Delete, old
	case old != nil:
		operation = admission.Update
	}
	kind := present.GroupVersionKind()
	attributes := &admission.VersionedAttributes{VersionedKind: kind}
	attributes.Attributes = admission.NewAttributesRecord(asObject(object), asObject(old), kind, present.GetNamespace(), present.GetName(),
		schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource}, "", operation, nil, false, &user.DefaultInfo{Name: userName})
	attributes.VersionedObject.Set(asObject(object))
	attributes.VersionedOldObject.Set(asObject(old))
	var message strings.Builder
	result := compilePolicy(t, p).Validate(t.Context(), attributes.GetResource(), attributes, nil, nil, celconfig.RuntimeCELCostBudget, rights)
	for _, decision := range result.Decisions {
		if decision.Evaluation == validating.EvalError {
			t.Errorf("%s: %s", p.Name, decision.Message)
		}
		if decision.Action == validating.ActionDeny {
			message.WriteString(decision.Message + "\n")
		}
	}
	return message.String()
}

// Who may write which fields of a Project holds without the webhook, with the words of the webhook. Guards invariants 4 and 8 of
// the design.
func TestProjectAuthorityWithoutTheWebhook(t *testing.T) {
	const thesis = `
apiVersion: sluice.dev/v1alpha1
kind: Project
metadata: {name: thesis, finalizers: [sluice.dev/project], annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}", note: x}}
spec:
  department: students
  owners: [{name: Anna, email: a@example.org, user: anna}]
  members: [{kind: User, name: ed, role: editor}, {kind: User, name: kim, role: l2-researcher}, {kind: User, name: max, role: research-manager}]
  nodePools: [{name: dgx, gpu: {guaranteed: "1", limit: "2"}}, {name: mig, gpu: {limit: "2", overQuotaWeight: 0}}]
`
	rights := map[string]namedRights{
		"root": {"administer departments/projects"}, "dean": {"administer departments/projects students"},
		"both": {"administer departments/projects students", "administer departments/projects research"},
		"rita": {"manage projects thesis"}, "doctor": {}, lifecycle: {},
	}
	set := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	member := func(name, role string) any { return map[string]any{"kind": "User", "name": name, "role": role} }
	pool := func(name string, weight int64) any {
		return map[string]any{"name": name, "gpu": map[string]any{"limit": "2", "overQuotaWeight": weight}}
	}
	members := func(all ...any) func(*unstructured.Unstructured) { return set(all, "spec", "members") }
	ed, kim, manager, zoe := member("ed", "editor"), member("kim", "l2-researcher"), member("max", "research-manager"), member("zoe", "viewer")
	moved := set("research", "spec", "department")
	hold := set("mine", "spec", "hold", "reason")
	for name, tc := range map[string]struct {
		user    string
		creates bool
		change  func(*unstructured.Unstructured)
		want    string // "" if it is allowed
	}{
		"the doctor's account creates one":   {"doctor", true, set("x", "metadata", "labels", "a"), "doctor does not administer department students, and only its administrators create and delete its projects: ask"},
		"a manager of another creates one":   {"rita", true, set("x", "metadata", "labels", "a"), "rita does not administer department students"},
		"its administrator creates one":      {"dean", true, hold, ""},
		"another user changes it":            {"doctor", false, hold, "doctor does not administer department students, and does not manage the project either"},
		"another user labels it":             {"doctor", false, set("x", "metadata", "labels", "a"), "doctor does not administer"},
		"its administrator changes it":       {"dean", false, hold, ""},
		"its administrator gives it away":    {"dean", false, moved, "does not administer department research, and moving a project from students to research requires both"},
		"an administrator of both moves it":  {"both", false, moved, ""},
		"a system administrator moves it":    {"root", false, moved, ""},
		"lifecycle writes its finalizer":     {lifecycle, false, set([]any{}, "metadata", "finalizers"), ""},
		"a user changes its status":          {"doctor", false, set("x", "status", "phase"), ""},
		"a manager adds a researcher":        {"rita", false, members(ed, kim, manager, zoe), ""},
		"a manager removes a researcher":     {"rita", false, members(ed, manager), ""},
		"a manager appoints an editor":       {"rita", false, members(ed, kim, manager, member("zoe", "editor")), "editor is more than you may grant: a project manager grants and revokes only l1-researcher, l2-researcher, ml-engineer, viewer"},
		"a manager removes an editor":        {"rita", false, members(kim, manager), "without User ed removes the role editor"},
		"a manager replaces an editor":       {"rita", false, members(member("ed", "viewer"), kim, manager), "removes the role editor"},
		"a manager exchanges an editor":      {"rita", false, members(member("eve", "editor"), kim, manager), "the role editor is more than you may grant"},
		"a manager reorders the members":     {"rita", false, members(manager, kim, ed), ""},
		"a manager reorders and removes":     {"rita", false, members(manager, kim), "without User ed removes the role editor"},
		"another user reorders the members":  {"doctor", false, members(manager, kim, ed), "doctor does not administer department students, and does not manage the project either"},
		"a manager becomes an owner":         {"rita", false, set([]any{map[string]any{"name": "Rita", "email": "r@example.org", "user": "rita"}}, "spec", "owners"), "spec.owners: a project manager changes only"},
		"a manager holds it":                 {"rita", false, hold, "spec.hold: a project manager"},
		"a manager moves and labels it":      {"rita", false, func(o *unstructured.Unstructured) { moved(o); set("x", "metadata", "labels", "a")(o) }, "metadata.labels, spec.department: a project manager"},
		"a manager loosens Pod Security":     {"rita", false, set("privileged", "spec", "podSecurity"), "spec.podSecurity"},
		"a manager annotates it":             {"rita", false, set("y", "metadata", "annotations", "note"), "metadata.annotations"},
		"a manager applies it with kubectl":  {"rita", false, set("{1}", "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"), ""},
		"a manager removes a finalizer":      {"rita", false, set([]any{}, "metadata", "finalizers"), "metadata.finalizers"},
		"a manager sets limits":              {"rita", false, set("12h", "spec", "workloads", "train", "maxRuntime"), ""},
		"a manager takes more of what idles": {"rita", false, set([]any{pool("dgx", 2)}, "spec", "nodePools"), "cannot raise the project's share of idle GPUs"},
		"a manager takes what it had not":    {"rita", false, set([]any{pool("mig", 1)}, "spec", "nodePools"), "cannot raise the project's share of idle GPUs"},
		"a manager adds a pool":              {"rita", false, set([]any{pool("new", 1), pool("dgx", 1)}, "spec", "nodePools"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			old := decodeObject(t, thesis)
			object := old.DeepCopy()
			tc.change(object)
			if tc.creates {
				old = nil
			}
			message := denyClusterRequest(t, "sluice-project-authority", tc.user, rights[tc.user], "projects", old, object)
			if (message == "") != (tc.want == "") || !strings.Contains(message, tc.want) || strings.Contains(message, ": :") {
				t.Errorf("%q, want %q", message, tc.want)
			}
		})
	}
}

// A field that the policy does not name could be written by project managers while the webhooks are removed.
func TestProjectAuthorityNamesAllFields(t *testing.T) {
	managed := []string{"members", "nodePools", "resources", "workloads"}
	changed := variable(t, loadSet(t, false).policies["sluice-project-authority"], "changed")
	for i := range reflect.TypeFor[v1alpha1.ProjectSpec]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[v1alpha1.ProjectSpec]().Field(i).Tag.Get("json"), ",")
		if strings.Contains(changed, "'spec."+name+"'") == slices.Contains(managed, name) {
			t.Errorf("spec.%s: the policy names it: %v", name, !slices.Contains(managed, name))
		}
	}
}

// A project with the most members that the API server accepts does not exceed the cost that it allows.
func TestProjectAuthorityOfManyMembers(t *testing.T) {
	const most = 256 // maxItems of spec.members
	withMembers := func(roles []string, reversed bool, more ...any) *unstructured.Unstructured {
		var members []any
		for i := range most {
			members = append(members, map[string]any{"kind": "User", "name": fmt.Sprint("user-", i), "role": roles[i%len(roles)]})
		}
		if reversed {
			slices.Reverse(members)
		}
		o := decodeObject(t, "{apiVersion: sluice.dev/v1alpha1, kind: Project, metadata: {name: thesis}, spec: {department: students}}")
		if err := unstructured.SetNestedSlice(o.Object, append(members, more...), "spec", "members"); err != nil {
			t.Fatal(err)
		}
		return o
	}
	some, all := []string{"editor", "viewer"}, []string{"editor"}
	added := map[string]any{"kind": "User", "name": "new", "role": "viewer"}
	for name, tc := range map[string]struct{ old, object *unstructured.Unstructured }{
		"one is added":             {withMembers(some, false), withMembers(some, false, added)},
		"all in the reverse order": {withMembers(all, false), withMembers(all, true)},
	} {
		if message := denyClusterRequest(t, "sluice-project-authority", "rita", namedRights{"manage projects thesis"}, "projects", tc.old, tc.object); message != "" {
			t.Errorf("%s: %s", name, message)
		}
	}
}
