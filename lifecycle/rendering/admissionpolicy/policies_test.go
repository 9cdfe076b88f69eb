// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/rendering/admissionpolicy"
	"sluice.dev/manifests"
	"sluice.dev/policies/kaigroup"
)

// policySet is the policies and their bindings by name. former are the bindings for the namespaces of deleted projects.
type policySet struct {
	policies         map[string]*admissionv1.ValidatingAdmissionPolicy
	bindings, former map[string]*admissionv1.ValidatingAdmissionPolicyBinding
}

func loadSet(t *testing.T, denyOutside bool) policySet {
	t.Helper()
	objects, err := admissionpolicy.LoadPolicies(manifests.Files, denyOutside)
	if err != nil {
		t.Fatal(err)
	}
	set := policySet{
		map[string]*admissionv1.ValidatingAdmissionPolicy{},
		map[string]*admissionv1.ValidatingAdmissionPolicyBinding{},
		map[string]*admissionv1.ValidatingAdmissionPolicyBinding{},
	}
	for _, object := range objects {
		name := object.GetName()
		convert := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation
		if object.GetKind() == "ValidatingAdmissionPolicy" {
			set.policies[name] = &admissionv1.ValidatingAdmissionPolicy{}
			err = convert(object.Object, set.policies[name], true)
		} else {
			if policy, _, _ := unstructured.NestedString(object.Object, "spec", "policyName"); set.policies[policy] == nil {
				t.Errorf("binding %s comes before its policy", name)
			}
			binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
			err = convert(object.Object, binding, true)
			if binding.Spec.MatchResources == nil {
				set.bindings[name] = binding
			} else {
				set.former[name] = binding
			}
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(set.policies) < 24 || len(set.policies) != len(set.bindings) {
		t.Fatalf("%d policies, %d bindings", len(set.policies), len(set.bindings))
	}
	return set
}

// A missing parameter must deny in governed namespaces and allow elsewhere, where a policy that
// fails closed would refuse every pod of the cluster.
func TestPoliciesFailClosedInGovernedNamespacesOnly(t *testing.T) {
	set := loadSet(t, false)
	governed := func(p *admissionv1.ValidatingAdmissionPolicy) bool {
		selector := p.Spec.MatchConstraints.NamespaceSelector
		if selector != nil && len(selector.MatchExpressions) > 0 && selector.MatchExpressions[0].Operator == "Exists" {
			return true
		}
		object := p.Spec.MatchConstraints.ObjectSelector
		return object != nil && (len(object.MatchLabels) == 1 || len(object.MatchExpressions) == 1 && object.MatchExpressions[0].Operator == "Exists")
	}
	for name, p := range set.policies {
		b := set.bindings[name]
		if b == nil || b.Spec.PolicyName != name {
			t.Errorf("%s has no binding of its own", name)
			continue
		}
		if (p.Spec.ParamKind == nil) != (b.Spec.ParamRef == nil) {
			t.Errorf("%s: paramKind %v, paramRef %v", name, p.Spec.ParamKind, b.Spec.ParamRef)
			continue
		}
		if p.Spec.ParamKind == nil {
			if ptr.Deref(p.Spec.FailurePolicy, "") != admissionv1.Fail {
				t.Errorf("%s: failurePolicy %s", name, *p.Spec.FailurePolicy)
			}
			continue
		}
		if b.Spec.ParamRef.Name != v1alpha1.AdmissionParametersName || v1alpha1.ProjectParametersName != v1alpha1.AdmissionParametersName {
			t.Errorf("%s: parameters %q", name, b.Spec.ParamRef.Name)
		}
		wantFailure, wantMissing := admissionv1.Ignore, admissionv1.AllowAction
		if governed(p) {
			wantFailure, wantMissing = admissionv1.Fail, admissionv1.DenyAction
		}
		if *p.Spec.FailurePolicy != wantFailure || *b.Spec.ParamRef.ParameterNotFoundAction != wantMissing {
			t.Errorf("%s: failurePolicy %s, parameterNotFoundAction %s; want %s and %s",
				name, *p.Spec.FailurePolicy, *b.Spec.ParamRef.ParameterNotFoundAction, wantFailure, wantMissing)
		}
	}
}

func TestOnlyPoliciesForGPUsOutsideProjectsMayWarn(t *testing.T) {
	outside := []string{"sluice-bounded-pods", "sluice-gpu-claims", "sluice-gpu-pods"}
	for deny, want := range map[bool]admissionv1.ValidationAction{true: admissionv1.Deny, false: admissionv1.Warn} {
		for name, b := range loadSet(t, deny).bindings {
			expected := []admissionv1.ValidationAction{admissionv1.Deny}
			if slices.Contains(outside, name) {
				expected[0] = want
			}
			if diff := cmp.Diff(expected, b.Spec.ValidationActions); diff != "" {
				t.Errorf("%s with deny %v (-want +got)\n%s", name, deny, diff)
			}
		}
	}
}

// The namespace of a deleted project has no quotas: what the policies on GPUs outside projects only warn of is refused
// there. Guards invariant 3.
func TestGPUsAreRefusedInNamespacesOfDeletedProjects(t *testing.T) {
	for _, deny := range []bool{true, false} {
		set := loadSet(t, deny)
		var policies []string
		for name, b := range set.former {
			policies = append(policies, b.Spec.PolicyName)
			want := set.bindings[b.Spec.PolicyName].DeepCopy()
			want.Name, want.Spec.ValidationActions = name, []admissionv1.ValidationAction{admissionv1.Deny}
			want.Spec.MatchResources = &admissionv1.MatchResources{
				MatchPolicy: ptr.To(admissionv1.Equivalent), ObjectSelector: &metav1.LabelSelector{},
				NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: v1alpha1.LabelFormerProject, Operator: metav1.LabelSelectorOpExists},
				}},
			}
			if diff := cmp.Diff(want, b); diff != "" {
				t.Errorf("%s with deny %v (-want +got)\n%s", name, deny, diff)
			}
		}
		slices.Sort(policies)
		if diff := cmp.Diff([]string{"sluice-bounded-pods", "sluice-gpu-claims", "sluice-gpu-pods"}, policies); diff != "" {
			t.Errorf("policies (-want +got)\n%s", diff)
		}
	}
}

// The names that YAML repeats are those of the code.
func TestPoliciesUseNamesOfTheCode(t *testing.T) {
	exempt := tenancy.ExemptNamespaces()
	slices.Sort(exempt)
	for name, p := range loadSet(t, false).policies {
		selector := p.Spec.MatchConstraints.NamespaceSelector
		if selector == nil || len(selector.MatchExpressions) != 2 {
			continue
		}
		got := slices.Clone(selector.MatchExpressions[1].Values)
		slices.Sort(got)
		if diff := cmp.Diff(exempt, got); diff != "" {
			t.Errorf("%s: exempt namespaces (-want +got)\n%s", name, diff)
		}
	}
	var text strings.Builder
	files, err := fs.Glob(manifests.Files, "base/admission/policies/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := fs.ReadFile(manifests.Files, file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(content)
		for n, line := range strings.Split(string(content), "\n") {
			if len(line) > 140 {
				t.Errorf("%s:%d has %d columns, of at most 140", file, n+1, len(line))
			}
		}
	}
	for _, name := range []string{
		v1alpha1.LabelProject, v1alpha1.LabelQueued, v1alpha1.LabelManagedBy, v1alpha1.LabelKueueQueue, v1alpha1.LabelPodSecurityEnforce,
		v1alpha1.AnnotationCreatedBy, v1alpha1.AnnotationStoppedUntil, v1alpha1.AnnotationGPU, v1alpha1.AnnotationGPUFraction,
		v1alpha1.TaintRepartitioning, string(v1alpha1.ResourceGPUMilli), string(v1alpha1.ResourceGuaranteedMilli), v1alpha1.ResourceNVIDIAMIGPrefix,
		kaigroup.AnnotationGroup, kaigroup.LabelKRMProject,
	} {
		if !strings.Contains(text.String(), name) {
			t.Errorf("no policy names %s", name)
		}
	}
}

// A policy that iterates its keys instead of comparing all keys of Sluice would cost more with each label, and one
// that omits a key would not protect it. Guards invariants 4 and 10 of the design.
func TestPoliciesNameAllManagedKeys(t *testing.T) {
	found := 0
	for name, p := range loadSet(t, false).policies {
		expressions := []string{}
		for _, v := range p.Spec.Variables {
			expressions = append(expressions, v.Expression)
			if v.Name != "managedKeys" {
				continue
			}
			found++
			var keys []string
			if err := yaml.Unmarshal([]byte(v.Expression), &keys); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(v1alpha1.ManagedKeys(), keys); diff != "" {
				t.Errorf("%s: managed keys (-want +got)\n%s", name, diff)
			}
		}
		for _, v := range p.Spec.Validations {
			expressions = append(expressions, v.Expression, v.MessageExpression)
		}
		for _, expression := range expressions {
			for _, quadratic := range []string{"sets.", "Labels.filter(", "Annotations.filter(", "labels.filter(", "References.filter("} {
				if strings.Contains(expression, quadratic) {
					t.Errorf("%s: %s in %s", name, quadratic, expression)
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("%d policies have the list, want at least 5", found)
	}
}

// A kind that the policy does not name could give its time to another workload. Guards invariant 4.
func TestControllerReferencesOfEveryKindAreGuarded(t *testing.T) {
	p := loadSet(t, false).policies["sluice-controller-references"]
	for _, kind := range workloadkind.All() {
		guarded := slices.ContainsFunc(p.Spec.MatchConstraints.ResourceRules, func(rule admissionv1.NamedRuleWithOperations) bool {
			return slices.Contains(rule.APIGroups, kind.Group) && slices.Contains(rule.Resources, kind.Resource) && len(rule.Operations) == 2
		})
		if !guarded {
			t.Errorf("the policy does not name %s of group %q", kind.Resource, kind.Group)
		}
	}
}

// The operators that are trusted are ServiceAccounts in namespaces that no project can have.
// Guards invariant 4.
func TestKnownOperatorsAreOutsideProjects(t *testing.T) {
	controllers := admissionpolicy.NewParameters(v1alpha1.AdmissionParametersSpec{}).Spec.KindControllers
	for _, kind := range controllers {
		for _, user := range kind.Users {
			parts := strings.Split(string(user), ":")
			if len(parts) != 4 || parts[1] != "serviceaccount" || !tenancy.IsSystemNamespace(parts[2]) {
				t.Errorf("%s has the controller %s", kind.Kind, user)
			}
		}
	}
	if len(controllers) < 20 || !slices.IsSortedFunc(controllers, func(a, b v1alpha1.KindControllers) int { return strings.Compare(a.Kind, b.Kind) }) {
		t.Errorf("%d kinds have known operators: %v", len(controllers), controllers)
	}
}

// The limits that YAML repeats are those of the code.
func TestSizeLimitsAreThoseOfTheCode(t *testing.T) {
	set := loadSet(t, false)
	numbers := regexp.MustCompile(`[0-9]{2,}`)
	want := strings.Fields(fmt.Sprintln(v1alpha1.DefaultMaxLabels, v1alpha1.MaxListEntries, v1alpha1.MaxContainerResources))
	p := set.policies["sluice-size-limits"]
	for _, expression := range []string{p.Spec.MatchConditions[0].Expression, variable(t, p, "sizes"), variable(t, set.policies["sluice-managed-metadata"], "exceeded")} {
		for _, number := range numbers.FindAllString(expression, -1) {
			if !slices.Contains(want, number) {
				t.Errorf("the number %s is none of %v in %s", number, want, expression)
			}
		}
	}
	if v1alpha1.DefaultMaxLabels != v1alpha1.DefaultMaxAnnotations {
		t.Error("the policies would have to tell the two defaults apart")
	}
}

func variable(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy, name string) string {
	t.Helper()
	for _, v := range p.Spec.Variables {
		if v.Name == name {
			return v.Expression
		}
	}
	t.Fatalf("%s has no variable %s", p.Name, name)
	return ""
}

// Lifecycle may patch its own policies and bindings by name, and no others.
func TestRightsNameEveryPolicy(t *testing.T) {
	content, err := os.ReadFile("../../../manifests/base/rbac/lifecycle.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set := loadSet(t, false)
	want := slices.AppendSeq(slices.Collect(maps.Keys(set.policies)), maps.Keys(set.former))
	slices.Sort(want)
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if !slices.Contains(rule.Resources, "validatingadmissionpolicies") || len(rule.ResourceNames) == 0 {
				continue
			}
			got := slices.Clone(rule.ResourceNames)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-policies +rights)\n%s", diff)
			}
			return
		}
	}
	t.Error("no rule names the policies")
}

func TestLoadPoliciesRefusesFiles(t *testing.T) {
	const path = "base/admission/policies/a.yaml"
	for name, tc := range map[string]struct{ content, want string }{
		"another kind":      {"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", "Secret a is neither a policy nor a binding"},
		"no kind":           {"metadata: {name: a}\n", "Kind"},
		"no YAML":           {"{", "read " + path},
		"actions as a text": {"apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: a}\nspec: {validationActions: Warn}\n", "spec.validationActions"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := admissionpolicy.LoadPolicies(fstest.MapFS{path: {Data: []byte(tc.content)}}, true)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error that contains %q", err, tc.want)
			}
		})
	}
	if _, err := admissionpolicy.LoadPolicies(fstest.MapFS{}, false); err == nil {
		t.Error("no files are no error")
	}
}

func TestNewParametersMergesLists(t *testing.T) {
	got := admissionpolicy.NewParameters(v1alpha1.AdmissionParametersSpec{
		Binders:       []v1alpha1.UserPattern{"kai", "system:kube-scheduler"},
		DeviceClasses: []string{"mig.nvidia.com", "gpu.example.org"},
	}).Spec
	if diff := cmp.Diff([]v1alpha1.UserPattern{"kai", "system:kube-scheduler", "system:serviceaccount:kai-scheduler:binder"}, got.Binders); diff != "" {
		t.Errorf("binders (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"gpu.example.org", "gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"}, got.DeviceClasses); diff != "" {
		t.Errorf("device classes (-want +got)\n%s", diff)
	}
	if got.MaxLabels != v1alpha1.DefaultMaxLabels || got.MaxAnnotations != v1alpha1.DefaultMaxAnnotations {
		t.Errorf("at most %d labels and %d annotations", got.MaxLabels, got.MaxAnnotations)
	}
	for _, name := range []string{"amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi", "nvidia.com/pgpu", "nvidia.com/vgpu"} {
		if !slices.Contains(got.GPUResources, name) {
			t.Errorf("%s of another vendor is not shipped", name)
		}
	}
	units := workload.NewListedResources(nil, got.NonGPUResources).Units()
	for name, unlisted := range map[corev1.ResourceName]bool{
		"rdma/hca_shared": false, "nvidia.com/rdma_ib": false, "nvidia.com/hostdev": false, "nvidia.com/a100": true, "amd.com/gpu": true,
		"devices.kubevirt.io/kvm": false, "devices.kubevirt.io/gpu": true, "squat.ai/fuse": false, "squat.ai/nvidia0": true,
	} {
		if units.IsUnlisted(name) != unlisted {
			t.Errorf("%s is in no list: %v, want %v", name, !unlisted, unlisted)
		}
	}
	if !slices.Contains(got.Managers, "system:serviceaccount:sluice-system:lifecycle") || !slices.Contains(got.GPUResources, "nvidia.com/gpu") {
		t.Errorf("managers %v, GPU resources %v", got.Managers, got.GPUResources)
	}
}
