// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// A pod that exceeds the limit of its department is refused where nothing else counts the department, so that its
// controller waits longer each time. Otherwise lifecycle would end it, and a ReplicaSet create it again, without end.
// Guards invariants 3 and 10 of the design.
func TestFullDepartmentRefusesPods(t *testing.T) {
	const (
		gpu = `{metadata: {annotations: {sluice.dev/node-pools: dgx}}, ` +
			`spec: {containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 2}}}]}}`
		full  = "the limit of department students in node pool dgx leaves no GPUs, and the pod requests 2 GPUs"
		allow = v1alpha1.OversubscriptionAllow
		deny  = v1alpha1.OversubscriptionDeny
	)
	for name, tc := range map[string]struct {
		allocated        string
		oversubscription v1alpha1.Oversubscription
		scheduler        v1alpha1.Scheduler
		pod, want        string
	}{
		"full":                      {"8", allow, v1alpha1.SchedulerKube, gpu, full},
		"above its limit":           {"9", allow, v1alpha1.SchedulerYuniKorn, gpu, full},
		"too little room":           {"6500m", allow, v1alpha1.SchedulerKube, gpu, "leaves 1.5 GPUs"},
		"just enough room":          {"6", allow, v1alpha1.SchedulerKube, gpu, ""},
		"without a GPU":             {"8", allow, v1alpha1.SchedulerKube, `{spec: {containers: [{name: main, image: x}]}}`, ""},
		"limits within":             {"8", deny, v1alpha1.SchedulerKube, gpu, ""},
		"a queue of the department": {"8", allow, v1alpha1.SchedulerVolcano, gpu, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newFakeReader()
			cluster.pools["dgx"].Spec.Scheduler = tc.scheduler
			cluster.department.Spec.Oversubscription = tc.oversubscription
			use := v1alpha1.PoolUsage{Name: "dgx"}
			use.Limit, use.Allocated = resource.MustParse("8"), resource.MustParse("0")
			cluster.department.Status.NodePools = []v1alpha1.PoolUsage{use}
			base := newBase(t)
			base.Tenants = &evaluation.TenantResolver{Cache: cluster}
			request := podRequest(t, tc.pod)
			mutated := (&pod.Mutator{Base: base}).Handle(t.Context(), request)
			request.Object.Raw = applyPatch(t, request.Object.Raw, mutated)
			validator := &pod.Validator{Base: base}
			// The response of the policies is cached.
			for version, step := range []struct{ allocated, want string }{{"0", ""}, {tc.allocated, tc.want}, {"0", ""}} {
				cluster.department.ResourceVersion = strconv.Itoa(version + 2)
				cluster.department.Status.NodePools[0].Allocated = resource.MustParse(step.allocated)
				var message string
				if response := validator.Handle(t.Context(), request); !response.Allowed {
					message = response.Result.Message
				}
				if (message == "") != (step.want == "") || !strings.Contains(message, step.want) {
					t.Errorf("with %s of 8 GPUs in use: %q, want %q", step.allocated, message, step.want)
				}
			}
		})
	}
}

// podRequest returns the request to create a pod.
func podRequest(t *testing.T, text string) admission.Request {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "thesis", Object: runtime.RawExtension{Raw: raw},
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
	}}
	request.UserInfo.Username = "anna"
	return request
}
