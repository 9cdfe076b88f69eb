// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api"
	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// fakeAuthorizer has the departments that each user administers; "" means all. "project thesis" is a managed project.
type fakeAuthorizer map[string][]string

func (a fakeAuthorizer) Administers(_ context.Context, user authenticationv1.UserInfo, department string) (bool, error) {
	if user.Username == "offline" {
		return false, errors.New("down")
	}
	return slices.Contains(a[user.Username], department), nil
}

func (a fakeAuthorizer) Manages(ctx context.Context, user authenticationv1.UserInfo, project string) (bool, error) {
	return a.Administers(ctx, user, "project "+project)
}

var testAuthorizer = fakeAuthorizer{
	"root": {""}, "dean": {"students"}, "both": {"students", "research"},
	"rita": {"project thesis"}, "rector": {"research", "project thesis"},
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newReader returns a reader of these projects and the departments of the tests.
func newReader(t *testing.T, projects ...*v1alpha1.Project) client.Reader {
	t.Helper()
	w := newClusterState()
	research := w.Department.DeepCopy()
	research.Name = "research"
	objects := []client.Object{w.Department, research}
	for _, p := range projects {
		objects = append(objects, p)
	}
	return fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).Build()
}

// handle returns the response to a request of a user; before is nil for a creation.
func handle(t *testing.T, v *Validator, user string, before, after *v1alpha1.Project) admission.Response {
	t.Helper()
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, UserInfo: authenticationv1.UserInfo{Username: user},
	}}
	for _, part := range []struct {
		project *v1alpha1.Project
		into    *runtime.RawExtension
	}{{before, &request.OldObject}, {after, &request.Object}} {
		if part.project == nil {
			request.Operation = admissionv1.Create
			continue
		}
		p := part.project.DeepCopy()
		p.TypeMeta = metav1.TypeMeta{APIVersion: "sluice.dev/v1alpha1", Kind: "Project"}
		var err error
		if part.into.Raw, err = json.Marshal(p); err != nil {
			t.Fatal(err)
		}
		request.Name = p.Name
	}
	return v.Handler(newScheme(t)).Handle(t.Context(), request)
}

// A project has no namespace that the policies of other projects trust. Guards invariant 4 of the design.
func TestReservedNamespaces(t *testing.T) {
	mirror := &v1alpha1.Policy{
		ObjectMeta: metav1.ObjectMeta{Name: "core.namespace"},
		Spec:       v1alpha1.PolicySpec{Parameters: &apiextensionsv1.JSON{Raw: []byte(`{"ingressNamespaces": ["gateway"]}`)}},
	}
	parameters := &v1alpha1.AdmissionParameters{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName},
		Spec: v1alpha1.AdmissionParametersSpec{
			Controllers:      []v1alpha1.UserPattern{"system:kube-controller-manager", "system:serviceaccount:kubeflow:*"},
			ExemptNamespaces: []string{"burn-in"}, ReservedNamespaces: []v1alpha1.NamespacePattern{"*-system", "sluice-*", "cert-manager"},
		},
	}
	adoptable := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "vision-system", Annotations: map[string]string{v1alpha1.AnnotationAdoptBy: newProject().Name},
	}}
	newValidator := func(objects ...client.Object) *Validator {
		w := newClusterState()
		reader := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(append(objects, w.Department)...).Build()
		return &Validator{Cached: reader, Live: reader, Authorizer: testAuthorizer}
	}
	for name, tc := range map[string]struct {
		validator *Validator
		project   *v1alpha1.Project
		want      string
	}{
		"that of an ingress controller":    {newValidator(), newProject(withNamespace("ingress-nginx")), "spec.namespace"},
		"by the project's name":            {newValidator(), newProject(withName("contour"), withNamespace("")), "it may reach the pods of all projects"},
		"one in the policy's parameters":   {newValidator(mirror), newProject(withNamespace("gateway")), "core.namespace, ingressNamespaces"},
		"as shipped, beside parameters":    {newValidator(mirror), newProject(withNamespace("contour")), "is reserved"},
		"that of a trusted operator":       {newValidator(parameters), newProject(withNamespace("kubeflow")), "trust its service accounts"},
		"one that needs no project":        {newValidator(parameters), newProject(withNamespace("burn-in")), "exemptNamespaces"},
		"a component's, by its end":        {newValidator(parameters), newProject(withName("metallb-system"), withNamespace("")), "*-system is for components of the cluster"},
		"a component's, by its beginning":  {newValidator(parameters), newProject(withNamespace("sluice-console")), "sluice-* is for components of the cluster"},
		"a component's, by its name":       {newValidator(parameters), newProject(withNamespace("cert-manager")), "reservedNamespaces"},
		"a component's that exists":        {newValidator(parameters, adoptable), newProject(withNamespace("vision-system")), ""},
		"another":                          {newValidator(mirror, parameters), newProject(withNamespace("lab")), ""},
		"one that no list has, as gateway": {newValidator(), newProject(withNamespace("gateway")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			response := handle(t, tc.validator, "root", nil, tc.project)
			if response.Allowed != (tc.want == "") || !strings.Contains(response.Result.Message, tc.want) {
				t.Errorf("allowed %v: %s, want %q", response.Allowed, response.Result.Message, tc.want)
			}
		})
	}
}

func withLabels(p *v1alpha1.Project) { p.Labels = map[string]string{"tier": "gold"} }

func TestAuthorization(t *testing.T) {
	plain := newProject()
	tests := map[string]struct {
		user          string
		before, after *v1alpha1.Project
		code          int32
		wantMessage   string
	}{
		"another user creates it":                {"eve", nil, plain, http.StatusForbidden, "eve does not administer department students, and only its administrators create and delete its projects: ask a member of it with the role department-administrator"},
		"another user changes it":                {"eve", plain, newProject(withMember("eve", v1alpha1.RoleEditor)), http.StatusForbidden, "eve does not administer department students, and does not manage the project either: ask"},
		"another user labels it":                 {"eve", plain, newProject(withLabels), http.StatusForbidden, "eve does not administer"},
		"its administrator makes it":             {"dean", nil, plain, http.StatusOK, ""},
		"its administrator labels it":            {"dean", plain, newProject(withLabels), http.StatusOK, ""},
		"its administrator appoints one":         {"dean", plain, newProject(withMember("kim", v1alpha1.RoleDepartmentAdministrator)), http.StatusOK, ""},
		"one of another makes it":                {"dean", nil, newProject(withDepartment("research")), http.StatusForbidden, "dean does not administer department research"},
		"one of another moves it":                {"dean", newProject(withDepartment("research")), plain, http.StatusForbidden, "moving a project from research to students requires both"},
		"its administrator gives it away":        {"dean", plain, newProject(withDepartment("research")), http.StatusForbidden, "moving a project from students to research requires both"},
		"an administrator of both moves it":      {"both", plain, newProject(withDepartment("research")), http.StatusOK, ""},
		"a system administrator moves it":        {"root", plain, newProject(withDepartment("research")), http.StatusOK, ""},
		"an authorizer error":                    {"offline", nil, plain, http.StatusForbidden, "down"},
		"a department that is not":               {"root", nil, newProject(withDepartment("nobody")), http.StatusUnprocessableEntity, "no such department"},
		"a department that is not, for a dean":   {"dean", nil, newProject(withDepartment("nobody")), http.StatusForbidden, "does not administer department nobody"},
		"metadata of what is wrong all the same": {"dean", newProject(withPool("gone")), newProject(withPool("gone"), withLabels), http.StatusOK, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			all := newReader(t)
			got := handle(t, &Validator{Cached: all, Live: all, Authorizer: testAuthorizer}, tc.user, tc.before, tc.after)
			if got.Result == nil || got.Result.Code != tc.code || !strings.Contains(got.Result.Message, tc.wantMessage) {
				t.Errorf("response = %+v, want %d with %q", got.Result, tc.code, tc.wantMessage)
			}
		})
	}
}

// A stale cache never causes a denial.
func TestDenialsUseLiveState(t *testing.T) {
	stale, fresh := newReader(t, newProject(withName("course"), withQuota("3", "3"))), newReader(t)
	wants := newProject(withQuota("2", "2"))
	if got := handle(t, &Validator{Cached: stale, Live: fresh, Authorizer: testAuthorizer}, "dean", nil, wants); !got.Allowed {
		t.Errorf("refused for what is gone: %v", got.Result)
	}
	if got := handle(t, &Validator{Cached: stale, Live: stale, Authorizer: testAuthorizer}, "dean", nil, wants); got.Allowed || !strings.Contains(got.Result.Message, "1 is left") {
		t.Errorf("what is there: %v", got.Result)
	}
}

// The changes that rita can make, who only manages the project. An administrator can make the others.
func TestProjectManagerChanges(t *testing.T) {
	owned := newProject(withQuota("500m", "4"), withOwner("anna"), withMaxRuntime("24h"), withMember("ed", v1alpha1.RoleEditor), withMember("rita", v1alpha1.RoleResearchManager), withMember("kim", v1alpha1.RoleL2Researcher))
	changed := func(changes ...projectOption) *v1alpha1.Project {
		p := owned.DeepCopy()
		for _, c := range changes {
			c(p)
		}
		return p
	}
	without := func(name string) projectOption {
		return func(p *v1alpha1.Project) {
			p.Spec.Members = slices.DeleteFunc(p.Spec.Members, func(m v1alpha1.Member) bool { return m.Name == name })
		}
	}
	exception := &v1alpha1.Exception{Reason: "I say so"}
	const (
		only    = "a project manager changes only its spec.members, spec.nodePools, spec.resources and, to tighten them, spec.workloads: ask a member of department students with the role department-administrator"
		tighter = "a project manager can tighten its limits, never loosen them; the project has 24h: ask a member of department students"
	)
	tests := map[string]struct {
		after       *v1alpha1.Project
		code        int32
		wantMessage []string
	}{
		"nothing":              {changed(), http.StatusOK, nil},
		"a researcher":         {changed(withMember("zoe", v1alpha1.RoleL1Researcher)), http.StatusOK, nil},
		"one who goes":         {changed(without("kim")), http.StatusOK, nil},
		"an editor":            {changed(withMember("zoe", v1alpha1.RoleEditor)), http.StatusUnprocessableEntity, []string{"spec.members[3].role", `"editor"`, "more than you may grant"}},
		"an editor who goes":   {changed(without("ed")), http.StatusUnprocessableEntity, []string{"spec.members", "without User ed", "removes the role editor"}},
		"itself":               {changed(without("rita")), http.StatusUnprocessableEntity, []string{"removes the role research-manager"}},
		"more of what is left": {changed(withQuota("1", "6")), http.StatusOK, nil},
		"more than is left":    {changed(withQuota("1500m", "6")), http.StatusUnprocessableEntity, []string{"spec.nodePools[0].gpu.guaranteed", "1 is left"}},
		"more than the limit":  {changed(withQuota("1", "7")), http.StatusUnprocessableEntity, []string{"spec.nodePools[0].gpu.limit", "6 GPUs"}},
		"a pool of the department": {changed(func(p *v1alpha1.Project) {
			p.Spec.NodePools = append(p.Spec.NodePools, v1alpha1.PoolQuota{Name: "dgx-mig"})
		}), http.StatusOK, nil},
		"a pool of another's": {changed(withPool("h200")), http.StatusUnprocessableEntity, []string{"spec.nodePools[0].name"}},
		"a quota of CPU":      {changed(func(p *v1alpha1.Project) { p.Spec.Resources.CPU = ptr.To(resource.MustParse("4")) }), http.StatusOK, nil},
		"a tighter limit":     {changed(withMaxRuntime("12h")), http.StatusOK, nil},
		"a further limit": {changed(func(p *v1alpha1.Project) {
			p.Spec.Workloads[v1alpha1.WorkloadTrain] = v1alpha1.WorkloadLimits{MaxRuntime: ptr.To(period.MustParseDuration("3d"))}
		}), http.StatusOK, nil},
		"a larger part of what is idle": {changed(withOverQuotaWeight(2)), http.StatusForbidden, []string{"spec.nodePools[0].gpu.overQuotaWeight: Invalid value: 2", "cannot raise the project's share of idle GPUs; it is 1"}},
		"none of what is idle":          {changed(withOverQuotaWeight(0)), http.StatusOK, nil},
		"a looser limit":                {changed(withMaxRuntime("36h")), http.StatusForbidden, []string{`spec.workloads[interactive].maxRuntime: Invalid value: "36h"`, tighter}},
		"no limit":                      {changed(func(p *v1alpha1.Project) { p.Spec.Workloads = nil }), http.StatusForbidden, []string{"spec.workloads[interactive].maxRuntime: Required value", tighter}},
		"another department":            {changed(withDepartment("research")), http.StatusForbidden, []string{`spec.department: Invalid value: "research"`, only}},
		"another owner":                 {changed(withOwner("rita")), http.StatusForbidden, []string{"spec.owners: Forbidden", only}},
		"a hold":                        {changed(func(p *v1alpha1.Project) { p.Spec.Hold = exception }), http.StatusForbidden, []string{"spec.hold: Forbidden", only}},
		"an exemption":                  {changed(func(p *v1alpha1.Project) { p.Spec.Exempt = exception }), http.StatusForbidden, []string{"spec.exempt: Forbidden", only}},
		"a looser Pod Security":         {changed(withPodSecurity("privileged")), http.StatusForbidden, []string{`spec.podSecurity: Invalid value: "privileged"`, only}},
		"a stricter Pod Security":       {changed(withPodSecurity("restricted")), http.StatusForbidden, []string{"spec.podSecurity", only}},
		"another beginning":             {changed(func(p *v1alpha1.Project) { p.Spec.ValidFrom = ptr.To(period.MustParseDate("2026-10-01")) }), http.StatusForbidden, []string{`spec.validFrom: Invalid value: "2026-10-01"`, only}},
		"another namespace":             {changed(withNamespace("lab")), http.StatusForbidden, []string{`spec.namespace: Invalid value: "lab"`, only}},
		"a label of Sluice's":           {changed(func(p *v1alpha1.Project) { p.Labels = map[string]string{v1alpha1.LabelDepartment: "research"} }), http.StatusForbidden, []string{"metadata.labels: Forbidden", only}},
		"a label":                       {changed(withLabels), http.StatusForbidden, []string{"metadata.labels: Forbidden", only}},
		"a note":                        {changed(func(p *v1alpha1.Project) { p.Annotations = map[string]string{"sluice.dev/note": "x"} }), http.StatusForbidden, []string{"metadata.annotations: Forbidden", only}},
		"what kubectl keeps":            {changed(func(p *v1alpha1.Project) { p.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}"} }), http.StatusOK, nil},
		"an owner in Kubernetes":        {changed(func(p *v1alpha1.Project) { p.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }), http.StatusForbidden, []string{"metadata.ownerReferences: Forbidden", only}},
		"a finalizer":                   {changed(func(p *v1alpha1.Project) { p.Finalizers = []string{"example.org/mine"} }), http.StatusForbidden, []string{"metadata.finalizers: Forbidden", only}},
		"all at once":                   {changed(withDepartment("research"), withLabels, withMaxRuntime("36h")), http.StatusForbidden, []string{"metadata.labels", "spec.department", "spec.workloads[interactive].maxRuntime"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			all := newReader(t, newProject(withName("course"), withQuota("3", "3")))
			got := handle(t, &Validator{Cached: all, Live: all, Authorizer: testAuthorizer}, "rita", owned, tc.after)
			if got.Result == nil || got.Result.Code != tc.code {
				t.Fatalf("response = %+v, want %d with %q", got.Result, tc.code, tc.wantMessage)
			}
			for _, want := range tc.wantMessage {
				if !strings.Contains(got.Result.Message, want) {
					t.Errorf("%q does not say %q", got.Result.Message, want)
				}
			}
		})
	}
}

// A manager manages one existing project, and has no authority over its department.
func TestProjectManagerIsLimitedToOneProject(t *testing.T) {
	plain, member := newProject(), withMember("kim", v1alpha1.RoleL2Researcher)
	tests := map[string]struct {
		user          string
		before, after *v1alpha1.Project
		code          int32
		wantMessage   string
	}{
		"made":                                   {"rita", nil, plain, http.StatusForbidden, "rita does not administer department students, and only its administrators create"},
		"another's member":                       {"rita", newProject(withName("course")), newProject(withName("course"), member), http.StatusForbidden, "does not manage the project either"},
		"moved by who administers where it goes": {"rector", plain, newProject(withDepartment("research")), http.StatusForbidden, "spec.department"},
		"its member, by the same":                {"rector", plain, newProject(member), http.StatusOK, ""},
		"an authorizer error":                    {"offline", plain, newProject(member), http.StatusForbidden, "down"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			all := newReader(t)
			got := handle(t, &Validator{Cached: all, Live: all, Authorizer: testAuthorizer}, tc.user, tc.before, tc.after)
			if got.Result == nil || got.Result.Code != tc.code || !strings.Contains(got.Result.Message, tc.wantMessage) {
				t.Errorf("response = %+v, want %d with %q", got.Result, tc.code, tc.wantMessage)
			}
		})
	}
}

// withOverQuotaWeight sets the weight of the project's first node pool.
func withOverQuotaWeight(weight int32) func(*v1alpha1.Project) {
	return func(p *v1alpha1.Project) { p.Spec.NodePools[0].GPU.OverQuotaWeight = &weight }
}
