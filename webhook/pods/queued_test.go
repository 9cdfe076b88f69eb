// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/pods"
	"sluice.dev/webhook/tenant"
)

// A pod that Kueue is to queue comes in with its gate, or as a part of what Kueue
// suspends; only the final pod is asked for it, whichever webhook comes first.
func TestAPodWaitsForItsTurn(t *testing.T) {
	cluster := university()
	for _, pool := range cluster.pools {
		pool.Spec.Scheduler = v1alpha1.SchedulerKueue
	}
	desk := newDesk(t)
	desk.Tenants = &tenant.Directory{Cache: cluster}
	mutator, validator := &pods.Mutator{Desk: desk}, &pods.Validator{Desk: desk}
	const (
		gpu   = `containers: [{name: main, image: x, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}]`
		owned = `metadata: {ownerReferences: [{apiVersion: `
	)
	for name, tc := range map[string]struct{ pod, says string }{
		"without a gate":                {`{spec: {` + gpu + `}}`, "Kueue's webhook did not see the pod"},
		"with another":                  {`{spec: {schedulingGates: [{name: mine}], ` + gpu + `}}`, "Kueue's webhook did not see the pod"},
		"of a Deployment":               {`{` + owned + `apps/v1, kind: ReplicaSet, name: a, uid: u, controller: true}]}, spec: {` + gpu + `}}`, "Kueue's webhook did not see the pod"},
		"in order: with the gate":       {`{spec: {schedulingGates: [{name: kueue.x-k8s.io/admission}], ` + gpu + `}}`, ""},
		"in order: of a Job":            {`{` + owned + `batch/v1, kind: Job, name: a, uid: u, controller: true}]}, spec: {` + gpu + `}}`, ""},
		"in order: without a GPU":       {`{spec: {containers: [{name: main, image: x}]}}`, ""},
		"a queue of somebody else's":    {`{metadata: {labels: {kueue.x-k8s.io/queue-name: other}}, spec: {containers: [{name: main, image: x}]}}`, "queue other is not that of project thesis"},
		"in order: the project's queue": {`{metadata: {labels: {kueue.x-k8s.io/queue-name: default}}, spec: {containers: [{name: main, image: x}]}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := yaml.YAMLToJSON([]byte(tc.pod))
			if err != nil {
				t.Fatal(err)
			}
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Namespace: "thesis", Object: runtime.RawExtension{Raw: raw},
				Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			}}
			request.UserInfo.Username = "anna"
			response := mutator.Handle(t.Context(), request)
			if response.Allowed {
				steps, err := jsonpatch.DecodePatch(response.Patch)
				if err != nil {
					t.Fatal(err)
				}
				if request.Object.Raw, err = steps.Apply(raw); err != nil {
					t.Fatal(err)
				}
				response = validator.Handle(t.Context(), request)
			} else if strings.Contains(response.Result.Message, "did not see") {
				t.Errorf("refused before all had their turn: %s", response.Result.Message)
			}
			if response.Allowed != (tc.says == "") || (tc.says != "" && !strings.Contains(response.Result.Message, tc.says)) {
				t.Errorf("%v, want %q", response.Result, tc.says)
			}
		})
	}
}
