// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
)

// newClock returns the clock of a Job that holds GPUs; none if gpus is empty.
func newClock(name, gpus, creator string, changes ...func(*v1alpha1.WorkloadClockStatus)) v1alpha1.WorkloadClock {
	c := v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "job-" + name},
		Spec:       v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: name}},
		Status: v1alpha1.WorkloadClockStatus{
			CreatedBy: creator, RunningSince: &metav1.Time{Time: time.Date(2026, 10, 5, 12, 0, 0, 0, time.UTC)},
			Local: &v1alpha1.ClockLocal{RunningSince: "2026-10-05 14:00 CEST"},
		},
	}
	if gpus != "" {
		c.Status.GPUs = ptr.To(resource.MustParse(gpus))
	}
	for _, change := range changes {
		change(&c.Status)
	}
	return c
}

func TestDescribeRunningWork(t *testing.T) {
	starting := func(s *v1alpha1.WorkloadClockStatus) {
		s.RunningSince, s.StartingSince = nil, &metav1.Time{Time: time.Date(2026, 10, 5, 12, 0, 0, 0, time.UTC)}
	}
	idle := func(s *v1alpha1.WorkloadClockStatus) { s.RunningSince = nil }
	got := describeRunningWork("thesis", []v1alpha1.WorkloadClock{
		newClock("small", "500m", "anna"), newClock("finished", "", "anna"), newClock("large", "8", "ben@example.org"),
		newClock("stuck", "1", "anna", starting), newClock("idle", "1", "", idle), newClock("unreadable", "0", "anna"),
	})
	want := `its deletion would end running GPU work:
  Job lab/large: 8 GPUs, created by ben@example.org, running since 2026-10-05 14:00 CEST
  Job lab/idle: 1 GPU, created by an unknown user, idle
  Job lab/stuck: 1 GPU, created by anna, its pods have not started
  Job lab/small: 0.5 of a GPU, created by anna, running since 2026-10-05 14:00 CEST
  Job lab/unreadable: no GPUs, created by anna, running since 2026-10-05 14:00 CEST
To confirm: kubectl annotate slproj thesis sluice.dev/confirm-delete=thesis, and delete it again`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	var many []v1alpha1.WorkloadClock
	for i := range 1000 {
		many = append(many, newClock(fmt.Sprintf("run-%04d", i), "1", "anna"))
	}
	if got := describeRunningWork("thesis", many); strings.Count(got, "\n") != 12 || !strings.Contains(got, "\n  and 990 more\n") {
		t.Errorf("a thousand workloads are listed as\n%s", got)
	}
}

// Guards invariant 2: a project is deleted without its running work being named and confirmed only if it has none, or
// no namespace of its own. A failed list refuses, except where the deletion is confirmed.
func TestDeletionOfProjectWithRunningWork(t *testing.T) {
	confirmedAs := func(name string) projectOption {
		return func(p *v1alpha1.Project) { p.Annotations = map[string]string{v1alpha1.AnnotationConfirmDelete: name} }
	}
	inLab := func(p *v1alpha1.Project) { p.Status.Namespace = &v1alpha1.ProjectNamespace{Name: "lab"} }
	inAnother := func(p *v1alpha1.Project) { p.Status.Namespace = &v1alpha1.ProjectNamespace{Name: "other"} }
	deleting := func(p *v1alpha1.Project) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)} }
	inPhase := func(phase v1alpha1.ProjectPhase) projectOption {
		return func(p *v1alpha1.Project) { p.Status.Phase = phase }
	}
	down := func(p *v1alpha1.Project) { p.Labels = map[string]string{"list": "fails"} }
	tests := map[string]struct {
		project *v1alpha1.Project
		denied  string
	}{
		"running work":                     {newProject(inLab), "Job lab/train: 1 GPU"},
		"confirmed":                        {newProject(inLab, confirmedAs("thesis")), ""},
		"confirmed for another project":    {newProject(inLab, confirmedAs("course")), "Job lab/train: 1 GPU"},
		"no running work":                  {newProject(inAnother), ""},
		"another project's namespace only": {newProject(withNamespace("lab")), ""},
		"already being deleted":            {newProject(inLab, deleting), ""},
		"approved":                         {newProject(inLab, inPhase(v1alpha1.ProjectDeleting)), ""},
		"not approved yet":                 {newProject(inLab, inPhase(v1alpha1.ProjectPendingDeletion)), "Job lab/train: 1 GPU"},
		"a failed list":                    {newProject(inLab, down), "list running workloads in namespace lab: down"},
		"a failed list, confirmed":         {newProject(inLab, down, confirmedAs("thesis")), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cached := fake.NewClientBuilder().WithScheme(newScheme(t)).
				WithObjects(ptr.To(newClock("train", "1", "anna")), ptr.To(newClock("finished", "", "anna"))).
				WithInterceptorFuncs(interceptor.Funcs{List: listOrFail(tc.project.Labels["list"] == "fails")}).Build()
			p := tc.project.DeepCopy()
			p.TypeMeta = metav1.TypeMeta{APIVersion: "sluice.dev/v1alpha1", Kind: "Project"}
			raw, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			v := &Validator{Cached: cached, Authorizer: testAuthorizer}
			got := v.Handler(newScheme(t)).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Delete, Name: p.Name, UserInfo: authenticationv1.UserInfo{Username: "dean"},
				OldObject: runtime.RawExtension{Raw: raw},
			}})
			if got.Allowed != (tc.denied == "") || !strings.Contains(got.Result.Message, tc.denied) {
				t.Errorf("response = %+v, want a denial with %q", got.Result, tc.denied)
			}
			if tc.denied != "" && got.Result.Code != http.StatusForbidden {
				t.Errorf("code = %d", got.Result.Code)
			}
		})
	}
}

// listOrFail returns a list call that fails if the cluster is down.
func listOrFail(down bool) func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	return func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if down {
			return errors.New("down")
		}
		return c.List(ctx, list, opts...)
	}
}
