// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"fmt"
	"net/http"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/workload"
)

// No controller takes over what another user created, and a refusal keeps no controller from its own pods. Guards
// invariants 4 and 12 of the design.
func TestAdoption(t *testing.T) {
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	parameters := &v1alpha1.AdmissionParameters{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName},
		Spec:       v1alpha1.AdmissionParametersSpec{Controllers: []v1alpha1.UserPattern{"system:serviceaccount:kube-system:*"}},
	}
	pod := func(creator, references string) runtime.RawExtension {
		return runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"metadata":{"name":"notebook","annotations":{%s},"ownerReferences":[%s]}}`, creator, references)}
	}
	const (
		byAnna       = `"sluice.dev/created-by":"anna@example.org"`
		byController = `"sluice.dev/created-by":"system:serviceaccount:kube-system:replicaset-controller"`
		replicaSet   = `{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"thief","uid":"1","controller":true}`
		dependent    = `{"apiVersion":"v1","kind":"ConfigMap","name":"settings","uid":"2"}`
	)
	for name, tc := range map[string]struct {
		before, after runtime.RawExtension
		allowed       bool
	}{
		"a user's pod gets a controller":          {before: pod(byAnna, ""), after: pod(byAnna, replicaSet)},
		"one with an owner gets a controller":     {before: pod(byAnna, dependent), after: pod(byAnna, dependent+","+replicaSet)},
		"the creator changes in the same request": {before: pod(byAnna, ""), after: pod(byController, replicaSet)},
		"a pod of an unknown user":                {before: pod("", ""), after: pod("", replicaSet)},
		"a pod that a controller released":        {before: pod(byController, ""), after: pod(byController, replicaSet), allowed: true},
		"a user's pod gets an owner":              {before: pod(byAnna, ""), after: pod(byAnna, dependent), allowed: true},
		"a controlled pod":                        {before: pod(byAnna, replicaSet), after: pod(byAnna, replicaSet), allowed: true},
	} {
		t.Run(name, func(t *testing.T) {
			v := &workload.AdoptionValidator{Cache: fake.NewClientBuilder().WithScheme(scheme).WithObjects(parameters).Build()}
			response := v.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Update, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Name: "notebook",
				OldObject: tc.before, Object: tc.after,
			}})
			if response.Allowed != tc.allowed {
				t.Fatalf("allowed = %v: %v", response.Allowed, response.Result)
			}
			if !tc.allowed && (response.Result.Code != http.StatusNotFound || !apierrors.IsNotFound(&apierrors.StatusError{ErrStatus: *response.Result})) {
				t.Errorf("%+v: the controllers of Kubernetes go on without the pod only if it is not found", response.Result)
			}
		})
	}
}
