// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restart_test

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
)

// Of a namespace with as many clocks as it may have, the user with most of them creates no further workloads, and all others do. Guards
// invariant 2 of the design.
func TestClockCount(t *testing.T) {
	clocks := func(count int, user string) (list []client.Object) {
		for i := range count {
			c := newClock(schema.GroupKind{Group: "batch", Kind: "Job"}, fmt.Sprintf("%s-%d", user[:1], i), "", earlier)
			c.Status.CreatedBy = user
			list = append(list, c)
		}
		return list
	}
	job := `{"apiVersion":"batch/v1","kind":"Job","metadata":{"namespace":"work","name":"next"%s},"spec":{"template":{"spec":{"containers":[{"name":"main"}]}}}}`
	full := append(clocks(v1alpha1.MaxClocks-400, anna), clocks(400, bob)...)
	for name, tc := range map[string]struct {
		clocks []client.Object
		user   string
		more   string
		denied bool
	}{
		"who has most":           {clocks: full, user: anna, denied: true},
		"another":                {clocks: full, user: bob},
		"a controller's":         {clocks: full, user: anna, more: `,"ownerReferences":[{"apiVersion":"batch/v1","kind":"CronJob","name":"c","uid":"u","controller":true}]`},
		"a newcomer":             {clocks: full, user: "carla@example.org"},
		"both have as many":      {clocks: append(clocks(v1alpha1.MaxClocks/2, anna), clocks(v1alpha1.MaxClocks/2, bob)...), user: bob, denied: true},
		"one less than too many": {clocks: full[1:], user: anna},
	} {
		t.Run(name, func(t *testing.T) {
			response := newValidator(t, tc.clocks...).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Namespace: ns, Name: "next", Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"},
				UserInfo: authenticationv1.UserInfo{Username: tc.user}, Object: runtime.RawExtension{Raw: fmt.Appendf(nil, job, tc.more)},
			}})
			if response.Allowed == tc.denied || tc.denied && !strings.Contains(response.Result.Message, "namespace work has 1000 workloads whose running time is kept, at most 1000, and ") {
				t.Errorf("allowed = %v: %+v", response.Allowed, response.Result)
			}
		})
	}
}
