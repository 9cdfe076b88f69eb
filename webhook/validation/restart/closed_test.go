// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restart_test

import (
	"cmp"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/validation/restart"
)

// newClosedValidator returns a validator whose project is closed.
func newClosedValidator(t *testing.T, clocks ...client.Object) *restart.Validator {
	t.Helper()
	validator := newValidator(t, clocks...)
	cache, ok := validator.Clocks.(client.Client)
	if !ok {
		t.Fatal("the cache cannot be written")
	}
	var project v1alpha1.Project
	if err := cache.Get(t.Context(), client.ObjectKey{Name: "thesis"}, &project); err != nil {
		t.Fatal(err)
	}
	project.Status.ClosedAt = ptr.To(metav1.NewTime(earlier))
	if err := cache.Update(t.Context(), &project); err != nil {
		t.Fatal(err)
	}
	return validator
}

// Guards invariant 4 of the design: the pods of a workload that ran before its project expired are replaced, so the
// workload must not get further ones by a change.
func TestWorkloadsInClosedProjectGetNoFurtherPods(t *testing.T) {
	scaled := func(kind string, replicas int64, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
		object := newWorkload(kindByName(t, kind), "w", "program", true)
		if kind == "Job" {
			setPath(object.Object, []string{"spec", "parallelism"}, replicas)
		} else {
			setPath(object.Object, []string{"spec", "replicas"}, replicas)
		}
		for _, with := range change {
			with(object)
		}
		return object
	}
	suspended := func(u *unstructured.Unstructured) { setPath(u.Object, []string{"spec", "suspend"}, true) }
	withoutGPU := func(u *unstructured.Unstructured) {
		setPath(u.Object, []string{"spec", "template", "spec", "containers"}, []any{map[string]any{"name": "main"}})
	}
	program := func(u *unstructured.Unstructured) {
		setPath(u.Object, []string{"spec", "template", "spec", "hostname"}, "x")
	}
	controlled := func(u *unstructured.Unstructured) { withController(u, "apps/v1", "Deployment", "web") }
	for name, tc := range map[string]struct {
		kind    string
		was, is *unstructured.Unstructured
		user    string
		denied  bool
	}{
		"scaled up":                               {"Deployment", scaled("Deployment", 2), scaled("Deployment", 3), anna, true},
		"scaled up by a controller":               {"Deployment", scaled("Deployment", 2), scaled("Deployment", 3), controllerManager, true},
		"scaled down":                             {"Deployment", scaled("Deployment", 3), scaled("Deployment", 2), anna, false},
		"scaled up without GPUs":                  {"Deployment", scaled("Deployment", 2, withoutGPU), scaled("Deployment", 3, withoutGPU), anna, false},
		"other changes":                           {"Deployment", scaled("Deployment", 2), scaled("Deployment", 2, program), anna, false}, // policies deny it
		"a Job is resumed":                        {"Job", scaled("Job", 1, suspended), scaled("Job", 1), anna, true},
		"a Job gets more pods at once":            {"Job", scaled("Job", 1), scaled("Job", 2), anna, true},
		"its ReplicaSet scaled by the controller": {"ReplicaSet", scaled("ReplicaSet", 2, controlled), scaled("ReplicaSet", 3, controlled), controllerManager, false},
		"its ReplicaSet scaled by a member":       {"ReplicaSet", scaled("ReplicaSet", 2, controlled), scaled("ReplicaSet", 3, controlled), anna, true},
		"its ReplicaSet changed by a member":      {"ReplicaSet", scaled("ReplicaSet", 2, controlled), scaled("ReplicaSet", 2, controlled, program), anna, true},
		"its ReplicaSet changed by a ServiceAccount": {
			"ReplicaSet", scaled("ReplicaSet", 2, controlled), scaled("ReplicaSet", 2, controlled, program), "system:serviceaccount:work:ci", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindByName(t, tc.kind)
			tc.was.SetGroupVersionKind(kind.WithVersion("v1"))
			tc.is.SetGroupVersionKind(kind.WithVersion("v1"))
			response := validateChange(t, newClosedValidator(t), tc.user, kind, tc.was, tc.is)
			if response.Allowed == tc.denied {
				t.Errorf("allowed %v: %s", response.Allowed, response.Result.Message)
			}
			if tc.denied && !strings.Contains(response.Result.Message, kind.Resource+" w cannot get further pods: project thesis has expired") {
				t.Error(response.Result.Message)
			}
			if open := validateChange(t, newValidator(t), tc.user, kind, tc.was, tc.is); !open.Allowed {
				t.Errorf("denied in an open project: %s", open.Result.Message)
			}
		})
	}
}

// The scale subresource does not tell whether the pods have GPUs: the clock does, by the UID of the workload or of a
// controller of its pods.
func TestScaleInClosedProject(t *testing.T) {
	ran := newClock(kindByName(t, "Deployment").GroupKind, "web", "", time.Time{}, func(s *v1alpha1.WorkloadClockStatus) {
		s.RootUID, s.PodControllers = "web", []types.UID{"web-1"}
	})
	scale := func(uid string, replicas int) map[string]any {
		return map[string]any{
			"apiVersion": "autoscaling/v1", "kind": "Scale",
			"metadata": map[string]any{"namespace": ns, "name": "web", "uid": uid}, "spec": map[string]any{"replicas": replicas},
		}
	}
	for name, tc := range map[string]struct {
		uid      string
		from, to int
		denied   bool
	}{
		"up":                            {"web", 1, 2, true},
		"up, of its ReplicaSet":         {"web-1", 1, 2, true},
		"down":                          {"web", 2, 1, false},
		"up, of a workload without GPU": {"other", 1, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			response := newClosedValidator(t, ran).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Namespace: ns, Name: "web", Operation: admissionv1.Update, SubResource: "scale",
				Kind:     metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
				Resource: metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
				UserInfo: authenticationv1.UserInfo{Username: anna},
				Object:   rawExtension(t, scale(tc.uid, tc.to)), OldObject: rawExtension(t, scale(tc.uid, tc.from)),
			}})
			if response.Allowed == tc.denied {
				t.Errorf("allowed %v: %s", response.Allowed, response.Result.Message)
			}
		})
	}
}

// Guards invariant 4 of the design: an operator derives its pods from more fields than a count of replicas, and those of a
// kind without known templates are validated nowhere else.
func TestChangeOfAnOperatorsWorkloadInClosedProject(t *testing.T) {
	const operator = "system:serviceaccount:operator:operator"
	at := func(path string, value any) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) { setPath(u.Object, strings.Split(path, "."), value) }
	}
	for name, tc := range map[string]struct {
		kind    string
		was, is func(*unstructured.Unstructured)
		user    string
		neverRan,
		denied bool
	}{
		"another program":            {kind: "SparkApplication", was: at("spec.image", "a"), is: at("spec.image", "b"), denied: true},
		"more executors":             {kind: "SparkApplication", was: at("spec.executor.instances", 1), is: at("spec.executor.instances", 2), denied: true},
		"fewer executors":            {kind: "SparkApplication", was: at("spec.executor.instances", 2), is: at("spec.executor.instances", 1)},
		"without GPUs":               {kind: "SparkApplication", was: at("spec.executor.instances", 1), is: at("spec.executor.instances", 2), neverRan: true},
		"resumed":                    {kind: "SparkApplication", was: at("spec.suspend", true), is: at("spec.suspend", false), denied: true},
		"resumed without GPUs":       {kind: "SparkApplication", was: at("spec.suspend", true), is: at("spec.suspend", false), neverRan: true},
		"changed while suspended":    {kind: "SparkApplication", was: at("spec.suspend", true), is: at("spec.suspend", true)},
		"suspended":                  {kind: "SparkApplication", was: at("spec.suspend", false), is: at("spec.suspend", true)},
		"by its operator":            {kind: "SparkApplication", was: at("spec.image", "a"), is: at("spec.image", "b"), user: operator},
		"more replicas at least":     {kind: "InferenceService", was: at("spec.predictor.minReplicas", 1), is: at("spec.predictor.minReplicas", 9), denied: true},
		"its status":                 {kind: "InferenceService", was: at("status.phase", "a"), is: at("status.phase", "b")},
		"started by its annotation":  {kind: "Notebook", was: at("metadata.annotations.kubeflow-resource-stopped", "yes"), is: at("spec.x", 1), denied: true},
		"ended in order":             {kind: "Workflow", was: at("spec.x", 1), is: func(u *unstructured.Unstructured) { at("spec.x", 1)(u); at("spec.shutdown", "Stop")(u) }},
		"more hosts of a group":      {kind: "RayCluster", was: at("spec.workerGroupSpecs.*.numOfHosts", 1), is: at("spec.workerGroupSpecs.*.numOfHosts", 8), denied: true},
		"a group at least":           {kind: "RayCluster", was: at("spec.workerGroupSpecs.*.minReplicas", 1), is: at("spec.workerGroupSpecs.*.minReplicas", 8), denied: true},
		"a group resumed":            {kind: "RayCluster", was: at("spec.workerGroupSpecs.*.suspend", true), is: at("spec.workerGroupSpecs.*.suspend", false), denied: true},
		"a group suspended":          {kind: "RayCluster", was: at("spec.x", 1), is: func(u *unstructured.Unstructured) { at("spec.x", 1)(u); at("spec.workerGroupSpecs.*.suspend", true)(u) }},
		"workers deleted":            {kind: "RayCluster", was: at("spec.workerGroupSpecs.*.scaleStrategy", map[string]any{}), is: at("spec.workerGroupSpecs.*.scaleStrategy", map[string]any{"workersToDelete": []any{"w-1"}})},
		"another program of workers": {kind: "RayService", was: at("spec.rayClusterConfig.rayVersion", "2"), is: at("spec.rayClusterConfig.rayVersion", "3"), denied: true},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindByName(t, tc.kind)
			was, is := newWorkload(kind, "w", "program", true), newWorkload(kind, "w", "program", true)
			was.SetUID("root")
			tc.was(was)
			tc.is(is)
			ran := newClock(kind.GroupKind, "w", "", time.Time{}, func(s *v1alpha1.WorkloadClockStatus) { s.RootUID = "root" })
			if tc.neverRan {
				ran.Status.RootUID = "another"
			}
			validator := newClosedValidator(t, ran)
			if parameters, cache := (&v1alpha1.AdmissionParameters{}), validator.Clocks.(client.Client); tc.user == operator {
				if err := cache.Get(t.Context(), client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, parameters); err != nil {
					t.Fatal(err)
				}
				parameters.Spec.KindControllers = []v1alpha1.KindControllers{{
					Kind: kind.String(), Users: []v1alpha1.UserPattern{operator},
				}}
				if err := cache.Update(t.Context(), parameters); err != nil {
					t.Fatal(err)
				}
			}
			response := validateChange(t, validator, cmp.Or(tc.user, anna), kind, was, is)
			if response.Allowed == tc.denied {
				t.Errorf("allowed %v: %s", response.Allowed, response.Result.Message)
			}
		})
	}
}
