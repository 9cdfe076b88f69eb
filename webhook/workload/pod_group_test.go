// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/workload"
)

// A pod in the group of another keeps that group from being admitted: the group belongs to the creator of its first pod.
func TestPodGroupOfAnother(t *testing.T) {
	member := func(name, by, group string, age time.Duration, owner *metav1.OwnerReference) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: meta(name, by, owner)}
		pod.Labels = map[string]string{v1alpha1.LabelKueuePodGroup: group}
		pod.CreationTimestamp = metav1.NewTime(time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC).Add(-age))
		return pod
	}
	labeled := member("labeled", jobs, "labels", time.Minute, ref("batch/v1", "Job", "deleted"))
	labeled.Labels[v1alpha1.LabelCreator] = v1alpha1.CreatorLabel(anna)
	elsewhere := member("elsewhere", bob, "free", time.Minute, nil)
	elsewhere.Namespace = "other"
	all := append(objects(),
		member("a-intruder", bob, "bare", time.Minute, nil), member("first", anna, "bare", time.Hour, nil),
		member("train-g", jobs, "job", time.Hour, ref("batch/v1", "Job", "train")),
		member("orphan-g", jobs, "orphans", time.Hour, ref("batch/v1", "Job", "deleted")), labeled, elsewhere)
	handle := func(t *testing.T, resolver *workload.CreatorResolver, user, group string, owner *metav1.OwnerReference) admission.Response {
		t.Helper()
		raw, err := json.Marshal(member("new", "", group, 0, owner))
		if err != nil {
			t.Fatal(err)
		}
		return (&workload.PodCreatorValidator{Claims: &workload.ClaimReader{Creators: resolver}}).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: ns, UserInfo: authenticationv1.UserInfo{Username: user}, Object: runtime.RawExtension{Raw: raw},
		}})
	}
	resolver := newResolver(t, interceptor.Funcs{}, all...)
	for name, tc := range map[string]struct {
		user, group string
		owner       *metav1.OwnerReference
		of          string
	}{
		"own":                                 {user: anna, group: "bare"},
		"of the creator of its first pod":     {user: bob, group: "bare", of: anna},
		"own, of a controller":                {user: jobs, group: "bare", owner: ref("batch/v1", "Job", "train")},
		"of another's Job":                    {user: bob, group: "job", of: anna},
		"own, beside that of a Job":           {user: anna, group: "job"},
		"of another's Job, with forged owner": {user: bob, group: "job", owner: ref("batch/v1", "Job", "train"), of: anna},
		"own, by the label":                   {user: anna, group: "labels"},
		"of another, by the label":            {user: bob, group: "labels", of: "another workload"},
		"of a Job that is gone, by this":      {user: jobs, group: "orphans", owner: ref("batch/v1", "Job", "deleted")},
		"of a Job that is gone":               {user: anna, group: "orphans", of: "another workload"},
		"new":                                 {user: bob, group: "new"},
		"of that name in another namespace":   {user: anna, group: "free"},
	} {
		t.Run(name, func(t *testing.T) {
			response := handle(t, resolver, tc.user, tc.group, tc.owner)
			want := "is the pod group of " + tc.of + ", whose pods would wait"
			if response.Allowed != (tc.of == "") || !response.Allowed && !strings.Contains(response.Result.Message, want) {
				t.Errorf("allowed = %v: %+v, want %q", response.Allowed, response.Result, tc.of)
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		broken := newResolver(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, ok := list.(*metav1.PartialObjectMetadataList); ok {
				return context.DeadlineExceeded
			}
			return c.List(ctx, list, options...)
		}}, all...)
		if response := handle(t, broken, anna, "bare", nil); response.Allowed || response.Result.Code == http.StatusForbidden {
			t.Errorf("allowed = %v: %+v", response.Allowed, response.Result)
		}
	})
}
