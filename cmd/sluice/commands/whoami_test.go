// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/v1alpha1"
)

func resourceRule(resourceName string, verbs []string, names ...string) authorizationv1.ResourceRule {
	return authorizationv1.ResourceRule{APIGroups: []string{v1alpha1.Group}, Resources: []string{resourceName}, Verbs: verbs, ResourceNames: names}
}

func TestOwnAccess(t *testing.T) {
	get := []string{"get"}
	for name, tc := range map[string]struct {
		rules []authorizationv1.ResourceRule
		want  ownAccess
	}{
		"no member": {},
		"a member of two projects, one of them through two bindings": {
			rules: []authorizationv1.ResourceRule{
				resourceRule("projects", get, "thesis"), resourceRule("projects", get, "lab", "thesis"), resourceRule("nodepools", get, "dgx"),
			},
			want: ownAccess{projects: []string{"lab", "thesis"}, nodePools: []string{"dgx"}},
		},
		"other verbs, groups and resources are no membership": {rules: []authorizationv1.ResourceRule{
			resourceRule("projects", []string{"manage"}, "thesis"), resourceRule("projects/status", get, "thesis"),
			{APIGroups: []string{"project.openshift.io"}, Resources: []string{"projects"}, Verbs: get, ResourceNames: []string{"other"}},
		}},
		"an administrator of a department": {
			rules: []authorizationv1.ResourceRule{resourceRule("departments", get, "students"), resourceRule("projects", get, "thesis")},
			want:  ownAccess{projects: []string{"thesis"}, departments: []string{"students"}},
		},
		"an administrator of the cluster": {
			rules: []authorizationv1.ResourceRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
			want:  ownAccess{all: true},
		},
	} {
		got := newOwnAccess(authorizationv1.SubjectRulesReviewStatus{ResourceRules: tc.rules})
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(ownAccess{})); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// Names are compared as the API server authenticates them. A user is not a group or an account of that name.
func TestRolesOfOddNames(t *testing.T) {
	project := &v1alpha1.Project{Spec: v1alpha1.ProjectSpec{
		Owners: []v1alpha1.Owner{{User: "müller"}, {}},
		Members: []v1alpha1.Member{
			{Kind: v1alpha1.MemberUser, Name: "müller", Role: v1alpha1.RoleViewer},
			{Kind: v1alpha1.MemberUser, Name: "staff", Role: v1alpha1.RoleEditor},
			{Kind: v1alpha1.MemberGroup, Name: "staff", Role: v1alpha1.RoleL1Researcher},
			{Kind: v1alpha1.MemberServiceAccount, Namespace: "ci", Name: "builder", Role: v1alpha1.RoleL2Researcher},
			{Kind: v1alpha1.MemberUser, Name: "system:serviceaccount:ci:other", Role: v1alpha1.RoleMLEngineer},
		},
	}}
	for user, want := range map[string]string{
		"müller":                           "[{owner project} {viewer project}]",
		"mu\u0308ller":                     "[]", // the same letters, decomposed: another user for the API server
		"MÜLLER":                           "[]",
		"staff":                            "[{editor project}]",
		"system:serviceaccount:ci:builder": "[{l2-researcher project}]",
		"system:serviceaccount:ci:other":   "[{ml-engineer project}]",
		"system:serviceaccount:ci:":        "[]",
		"":                                 "[]",
	} {
		access := ownAccess{user: user}
		if got := fmt.Sprint(access.rolesOf(project, nil)); got != want {
			t.Errorf("%q has %s, want %s", user, got, want)
		}
	}
	access := ownAccess{user: "anna", groups: []string{"staff", "system:authenticated"}}
	if got := fmt.Sprint(access.rolesOf(project, nil)); got != "[{l1-researcher project, group staff}]" {
		t.Errorf("a member through a group has %s", got)
	}
}

func TestIdentityOutput(t *testing.T) {
	gpus := resource.MustParse
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis"},
		Spec: v1alpha1.ProjectSpec{
			Department: "students", Namespace: "thesis-ns",
			Members: []v1alpha1.Member{
				{Kind: v1alpha1.MemberUser, Name: "anna", Role: v1alpha1.RoleL2Researcher},
				{Kind: v1alpha1.MemberUser, Name: "secret-ben", Role: v1alpha1.RoleViewer, Email: "ben@example.org"},
			},
		},
		Status: v1alpha1.ProjectStatus{
			Phase: v1alpha1.ProjectActive, ExpiresAt: clockTime(240 * time.Hour),
			NodePools: []v1alpha1.PoolUsage{
				{Name: "dgx-mig", Unscheduled: gpus("500m"), GPUUsage: v1alpha1.GPUUsage{Guaranteed: gpus("500m"), Limit: gpus("2"), Allocated: gpus("1"), Pending: gpus("500m")}},
				{Name: "dgx", GPUUsage: v1alpha1.GPUUsage{Limit: gpus("1"), Allocated: gpus("2")}},
			},
		},
	}
	pool := &v1alpha1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "dgx-mig"}, Spec: v1alpha1.NodePoolSpec{Sharing: v1alpha1.SharingMIG},
		Status: v1alpha1.NodePoolStatus{GPUs: 8, Products: []v1alpha1.GPUModel{{Name: "NVIDIA-A100-SXM4-40GB", MIGProfiles: []v1alpha1.MIGProfile{"1g.5gb", "3g.20gb", "7g.40gb"}}}},
	}
	pool.Status.NodeKinds = []v1alpha1.NodeKind{{Product: "NVIDIA-A100-SXM4-40GB", GPUs: 8, PerGPU: corev1.ResourceList{"cpu": gpus("31875m"), "memory": gpus("127Gi")}}}
	parameters := &v1alpha1.ProjectParameters{
		ObjectMeta: metav1.ObjectMeta{Namespace: "thesis-ns", Name: "sluice"},
		Spec: v1alpha1.ProjectParametersSpec{
			Services: v1alpha1.ServiceTerms{Types: []v1alpha1.ServiceType{"ClusterIP"}, IngressHosts: []v1alpha1.IngressHost{"*.h2.example.org", "lab.example.org"}},
			TimeLimits: map[v1alpha1.WorkloadType]v1alpha1.EffectiveTimeLimits{
				v1alpha1.WorkloadTrain: {MaxRuntimeSeconds: 172800}, v1alpha1.WorkloadInference: {},
				v1alpha1.WorkloadInteractive: {MaxRuntimeSeconds: 86400, IdleTimeoutSeconds: 7200},
			},
		},
	}
	registries := &v1alpha1.ProjectParameters{
		ObjectMeta: metav1.ObjectMeta{Namespace: "thesis-ns", Name: "allowed-registries"},
		Spec:       v1alpha1.ProjectParametersSpec{Images: []string{"registry.example.org", "nvcr.io/nvidia"}},
	}
	c := newFakeClient(t, interceptor.Funcs{}, project, pool, parameters, registries)
	access := ownAccess{user: "anna", groups: []string{"staff", "system:authenticated"}, projects: []string{"deleted", "thesis"}, nodePools: []string{"dgx-mig", "gone"}}
	document, err := readIdentity(t.Context(), c, access)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := document.write(&text, time.UTC); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, text.String(), "whoami/member.txt")
	golden.Assert(t, jsonText(t, document), "whoami/member.json")

	// A member of nothing, with a name that a terminal must not receive, and rights that could not be listed.
	document, err = readIdentity(t.Context(), c, ownAccess{user: "\x1b[2Jeve", groups: []string{"a\nb"}, incomplete: true})
	if err != nil {
		t.Fatal(err)
	}
	text.Reset()
	if err := document.write(&text, time.UTC); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, text.String(), "whoami/no_member.txt")
}

// whoami sends a bounded number of requests, however many projects a user may get.
func TestIdentityReadsBoundedProjects(t *testing.T) {
	names := make([]string, 500)
	for i := range names {
		names[i] = fmt.Sprintf("p%03d", i)
	}
	document, err := readIdentity(t.Context(), newFakeClient(t, interceptor.Funcs{}), ownAccess{user: "dean", projects: names})
	if err != nil || document.More != 450 || len(document.Projects) != 0 {
		t.Errorf("%d more, %d projects: %v", document.More, len(document.Projects), err)
	}
}

// The page for researchers shows what the commands print.
func TestWhyPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/researcher/why.md")
	if err != nil {
		t.Fatal(err)
	}
	for command, golden := range map[string]string{
		"sluice why training -p thesis":    "../explanation/testdata/waiting-gpu-quota.txt",
		"sluice why job/training":          "../explanation/testdata/refused-policy.txt",
		"sluice why training -n thesis-ns": "../explanation/testdata/stopped-max-runtime.txt",
		"sluice why training":              "../explanation/testdata/ending-idle.txt",
		"sluice whoami":                    "testdata/whoami/member.txt",
	} {
		output, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if want := "```console\n$ " + command + "\n" + string(output) + "```\n"; !strings.Contains(string(page), want) {
			t.Errorf("docs/researcher/why.md lacks\n%s", want)
		}
	}
}
