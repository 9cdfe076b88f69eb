// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
)

var (
	closedAt = time.Date(2026, 9, 30, 22, 0, 0, 0, time.UTC)
	before   = metav1.NewTime(closedAt.Add(-time.Hour))
)

const (
	controllerManager = "system:kube-controller-manager"
	trainingOperator  = "system:serviceaccount:kubeflow:training-operator"
)

// indexFunc records the function of an index.
type indexFunc struct{ extract client.IndexerFunc }

func (f *indexFunc) IndexField(_ context.Context, _ client.Object, _ string, extract client.IndexerFunc) error {
	f.extract = extract
	return nil
}

// newClosedResolver returns a resolver of project thesis in namespace work, which is closed unless change opens it, and of
// the clock of Deployment web, whose ReplicaSet is rs.
func newClosedResolver(t *testing.T, change func(*v1alpha1.Project, *v1alpha1.WorkloadClockStatus)) *evaluation.TenantResolver {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis", Finalizers: []string{v1alpha1.FinalizerProject}},
		Spec: v1alpha1.ProjectSpec{Department: "students", Owners: []v1alpha1.Owner{
			{Contact: v1alpha1.Contact{Name: "Anna Beispiel"}}, {Contact: v1alpha1.Contact{Name: "Ben Muster"}},
		}},
		Status: v1alpha1.ProjectStatus{
			Phase: v1alpha1.ProjectExpired, ClosedAt: ptr.To(metav1.NewTime(closedAt)), Namespace: &v1alpha1.ProjectNamespace{Name: "work"},
		},
	}
	clock := &v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "work", Name: "deployment-web"},
		Status:     v1alpha1.WorkloadClockStatus{RootUID: "web", PodControllers: []types.UID{"old", "rs"}, StartedAt: &before},
	}
	change(project, &clock.Status)
	var projects, clocks indexFunc
	if err := evaluation.IndexProjects(t.Context(), &projects); err != nil {
		t.Fatal(err)
	}
	if err := evaluation.IndexClockControllers(t.Context(), &clocks); err != nil {
		t.Fatal(err)
	}
	return &evaluation.TenantResolver{Cache: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		project, clock,
		&v1alpha1.Department{
			ObjectMeta: metav1.ObjectMeta{Name: "students"},
			Spec:       v1alpha1.DepartmentSpec{Notices: v1alpha1.NoticeTerms{TimeZone: "Europe/Berlin"}},
		},
		&v1alpha1.AdmissionParameters{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName},
			Spec: v1alpha1.AdmissionParametersSpec{
				Controllers: []v1alpha1.UserPattern{controllerManager, "system:serviceaccount:kube-system:*"},
				KindControllers: []v1alpha1.KindControllers{
					{Kind: "PyTorchJob.kubeflow.org", Users: []v1alpha1.UserPattern{trainingOperator}},
				},
			},
		},
	).WithIndex(&v1alpha1.Project{}, evaluation.ProjectNamespaceIndex, projects.extract).
		WithIndex(&v1alpha1.WorkloadClock{}, evaluation.ClockControllerIndex, clocks.extract).Build()}
}

// createPodRequest is the creation of a pod by a user, with this controller if its UID is not empty.
func createPodRequest(t *testing.T, user, apiVersion, kind, uid string) *admission.Request {
	t.Helper()
	pod := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	if uid != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web-1", UID: types.UID(uid), Controller: ptr.To(true)}}
	}
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Namespace: "work", UserInfo: authenticationv1.UserInfo{Username: user}, Object: runtime.RawExtension{Raw: raw},
	}}
}

// Guards invariant 4 of the design: an expired project lets in the pods that replace those of a workload that ran before,
// and no other one, whatever reference a user writes.
func TestReplacementsOfExpiredProjectAreLetIn(t *testing.T) {
	for name, tc := range map[string]struct {
		user, apiVersion, kind, uid string
		change                      func(*v1alpha1.Project, *v1alpha1.WorkloadClockStatus)
		closed                      bool
	}{
		"a pod of its ReplicaSet":            {user: controllerManager, kind: "ReplicaSet", uid: "rs"},
		"a controller with its own identity": {user: "system:serviceaccount:kube-system:replicaset-controller", kind: "ReplicaSet", uid: "rs"},
		"a pod of the workload itself":       {user: controllerManager, kind: "StatefulSet", uid: "web"},
		"a pod of an operator's workload":    {user: trainingOperator, apiVersion: "kubeflow.org/v1", kind: "PyTorchJob", uid: "web"},
		"another operator's workload":        {user: trainingOperator, kind: "ReplicaSet", uid: "rs", closed: true},
		"a member's forged reference":        {user: "anna", kind: "ReplicaSet", uid: "rs", closed: true},
		"a service account's":                {user: "system:serviceaccount:work:default", kind: "ReplicaSet", uid: "rs", closed: true},
		"a new ReplicaSet":                   {user: controllerManager, kind: "ReplicaSet", uid: "new", closed: true},
		"a pod without a controller":         {user: "anna", closed: true},
		"started when the project was closed": {user: controllerManager, kind: "ReplicaSet", uid: "rs", closed: true, change: func(_ *v1alpha1.Project, s *v1alpha1.WorkloadClockStatus) {
			s.StartedAt = ptr.To(metav1.NewTime(closedAt))
		}},
		"never started":                   {user: controllerManager, kind: "ReplicaSet", uid: "rs", closed: true, change: func(_ *v1alpha1.Project, s *v1alpha1.WorkloadClockStatus) { s.StartedAt = nil }},
		"stopped by Sluice":               {user: controllerManager, kind: "ReplicaSet", uid: "rs", closed: true, change: func(_ *v1alpha1.Project, s *v1alpha1.WorkloadClockStatus) { s.Stopped = &v1alpha1.ClockStop{} }},
		"finished, and retried":           {user: controllerManager, kind: "ReplicaSet", uid: "rs", closed: true, change: func(_ *v1alpha1.Project, s *v1alpha1.WorkloadClockStatus) { s.CompletedAt = &before }},
		"a project that is being deleted": {user: controllerManager, kind: "ReplicaSet", uid: "rs", closed: true, change: func(p *v1alpha1.Project, _ *v1alpha1.WorkloadClockStatus) { p.DeletionTimestamp = &before }},
		"an open project":                 {user: "anna", change: func(p *v1alpha1.Project, _ *v1alpha1.WorkloadClockStatus) { p.Status.ClosedAt = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.apiVersion == "" {
				tc.apiVersion = "apps/v1"
			}
			if tc.change == nil {
				tc.change = func(*v1alpha1.Project, *v1alpha1.WorkloadClockStatus) {}
			}
			resolver := newClosedResolver(t, tc.change)
			tenant, err := resolver.ResolveForPod(t.Context(), createPodRequest(t, tc.user, tc.apiVersion, tc.kind, tc.uid))
			if err != nil || tenant.Closed != tc.closed {
				t.Errorf("closed %v, %v; want %v", tenant.Closed, err, tc.closed)
			}
			var project struct{ Closed bool }
			if raw, err := json.Marshal(tenant.Documents.Project); err != nil || json.Unmarshal(raw, &project) != nil || project.Closed != tc.closed {
				t.Errorf("input.project.closed is %v, %v; want %v", project.Closed, err, tc.closed)
			}
		})
	}
}

// A new pod that equals a replacement must not get its cached response.
func TestReplacementsHaveAVersionOfTheirOwn(t *testing.T) {
	resolver := newClosedResolver(t, func(*v1alpha1.Project, *v1alpha1.WorkloadClockStatus) {})
	closed, err := resolver.ResolveForPod(t.Context(), createPodRequest(t, "anna", "", "", ""))
	if err != nil {
		t.Fatal(err)
	}
	replacement, err := resolver.ResolveForPod(t.Context(), createPodRequest(t, controllerManager, "apps/v1", "ReplicaSet", "rs"))
	if err != nil || closed.Version == replacement.Version {
		t.Errorf("%v, the same version: %v", err, closed.Version == replacement.Version)
	}
}

func TestDescribeClosed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Project, *v1alpha1.WorkloadClockStatus)
		want   string
	}{
		"expired": {
			func(*v1alpha1.Project, *v1alpha1.WorkloadClockStatus) {},
			"project thesis has expired: it has accepted no new pods with GPUs since 2026-10-01 " +
				"(an owner, Anna Beispiel or Ben Muster, can renew it with sluice renew project/thesis; then try again)",
		},
		"many owners": {
			func(p *v1alpha1.Project, _ *v1alpha1.WorkloadClockStatus) {
				p.Spec.Owners = nil
				for _, name := range strings.Split("ABCD", "") {
					p.Spec.Owners = append(p.Spec.Owners, v1alpha1.Owner{Contact: v1alpha1.Contact{Name: v1alpha1.DisplayName(name)}})
				}
			},
			"project thesis has expired: it has accepted no new pods with GPUs since 2026-10-01 " +
				"(an owner, such as A, B, C, can renew it with sluice renew project/thesis; then try again)",
		},
		"deleted": {
			func(p *v1alpha1.Project, _ *v1alpha1.WorkloadClockStatus) { p.DeletionTimestamp = &before },
			"project thesis is being deleted: it accepts no new pods with GPUs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tenant, err := newClosedResolver(t, tc.change).Resolve(t.Context(), "work")
			if err != nil {
				t.Fatal(err)
			}
			if got := tenant.DescribeClosed(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
