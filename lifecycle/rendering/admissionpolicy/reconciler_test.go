// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func renderByName(t *testing.T, settings Settings) map[string]*unstructured.Unstructured {
	t.Helper()
	objects, err := Render(settings)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		byName[object.GetKind()+"/"+object.GetName()] = object
	}
	return byName
}

func TestRenderReturnsPolicyAndBindingForEachDefinition(t *testing.T) {
	objects := renderByName(t, Settings{})
	if len(objects) != 2*len(Names()) || len(Names()) < 12 {
		t.Fatalf("%d objects for %d doors", len(objects), len(Names()))
	}
	for _, name := range Names() {
		policy, binding := objects["ValidatingAdmissionPolicy/"+name], objects["ValidatingAdmissionPolicyBinding/"+name]
		if policy == nil || binding == nil {
			t.Fatalf("%s lacks a policy or a binding", name)
		}
		if got, _, _ := unstructured.NestedString(policy.Object, "spec", "failurePolicy"); got != "Fail" {
			t.Errorf("%s: failurePolicy %q", name, got)
		}
		if got, _, _ := unstructured.NestedString(binding.Object, "spec", "policyName"); got != name {
			t.Errorf("the binding of %s is for %s", name, got)
		}
	}
}

func TestOnlyPoliciesForGPUsOutsideProjectsMayWarn(t *testing.T) {
	for deny, want := range map[bool]string{true: "Deny", false: "Warn"} {
		for key, object := range renderByName(t, Settings{DenyGPUPodsOutside: deny}) {
			if object.GetKind() != "ValidatingAdmissionPolicyBinding" {
				continue
			}
			actions, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "validationActions")
			expected := "Deny"
			if strings.HasSuffix(key, "/sluice-gpu-pods") || strings.HasSuffix(key, "/sluice-gpu-claims") {
				expected = want
			}
			if diff := cmp.Diff([]string{expected}, actions); diff != "" {
				t.Errorf("%s with deny %v (-want +got)\n%s", key, deny, diff)
			}
		}
	}
}

func TestConfiguredDeviceClassesAreAddedToNVIDIA(t *testing.T) {
	want := `["gpu.example.org", "gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"]`
	for _, variable := range gpuNameVariables([]string{"mig.nvidia.com", "gpu.example.org"}) {
		if variable.Name == "deviceClasses" {
			if diff := cmp.Diff(want, variable.Expression); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			return
		}
	}
	t.Error("no variable deviceClasses")
}

// A name cannot end its string and go on as CEL.
func TestIdentitiesAreQuoted(t *testing.T) {
	got := isOneOf([]string{`x"] || true || [""`, "system:*", "line\nbreak"})
	want := `request.userInfo.username in ["x\"] || true || [\"\"", "line\nbreak"] || ["system:"].exists(b, request.userInfo.username.startsWith(b))`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestIdentitiesAreMergedWithBuiltIn(t *testing.T) {
	got := builtInIdentities.merge(Identities{Binders: []string{"kai", "system:kube-scheduler"}})
	if diff := cmp.Diff([]string{"kai", "system:kube-scheduler", "system:serviceaccount:kai-scheduler:binder"}, got.Binders); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(builtInIdentities.Managers, got.Managers); diff != "" {
		t.Errorf("managers (-want +got)\n%s", diff)
	}
}
