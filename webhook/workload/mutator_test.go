// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/workload"
)

// newMutator returns a mutator with the built-in policies and more policies. Project thesis owns namespace work; the
// cluster also has the objects of [queuedProject].
func newMutator(tb testing.TB, more ...engine.Source) *workload.Mutator {
	tb.Helper()
	types, err := api.NewScheme()
	if err != nil {
		tb.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(types).WithObjects(queuedProject()...).WithObjects(
		&v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}},
		&v1alpha1.Project{
			ObjectMeta: metav1.ObjectMeta{Name: "thesis"},
			Spec:       v1alpha1.ProjectSpec{Department: "students", Namespace: "work"},
			Status:     v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: "work"}},
		},
	).WithIndex(&v1alpha1.Project{}, evaluation.ProjectNamespaceIndex, func(object client.Object) []string {
		p, _ := object.(*v1alpha1.Project)
		return []string{p.Status.Namespace.Name}
	}).Build()
	limits := engine.Limits{Evaluation: time.Minute, Request: time.Minute} // for a busy machine
	policyEngine, err := engine.New(engine.Options{Libraries: policies.Libraries(), Limits: limits})
	if err != nil {
		tb.Fatal(err)
	}
	for _, report := range policyEngine.Update(append(policies.BuiltIn(), more...)) {
		for _, problem := range report.Problems {
			tb.Fatal(problem)
		}
	}
	return &workload.Mutator{Base: evaluation.Base{
		Evaluator: &evaluation.Evaluator{Engine: policyEngine, Clock: policytime.System()}, Tenants: &evaluation.TenantResolver{Cache: cache},
	}}
}

// createRequest returns the request to create an object in namespace work.
func createRequest(tb testing.TB, user, object string) admission.Request {
	tb.Helper()
	raw, err := yaml.YAMLToJSON([]byte(object))
	if err != nil {
		tb.Fatal(err)
	}
	var typeMeta struct{ APIVersion, Kind string }
	if err := json.Unmarshal(raw, &typeMeta); err != nil {
		tb.Fatal(err)
	}
	group, version, grouped := strings.Cut(typeMeta.APIVersion, "/")
	if !grouped {
		group, version = "", group
	}
	request := admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "work", Object: runtime.RawExtension{Raw: raw},
		Kind: metav1.GroupVersionKind{Group: group, Version: version, Kind: typeMeta.Kind},
	}
	request.UserInfo.Username = user
	return admission.Request{AdmissionRequest: request}
}

// patchedObject returns the object with the response's patch.
func patchedObject(t *testing.T, request admission.Request, response admission.Response) []byte {
	t.Helper()
	if !response.Allowed {
		t.Fatalf("denied: %s", response.Result.Message)
	}
	if response.Patch == nil {
		return request.Object.Raw
	}
	steps, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := steps.Apply(request.Object.Raw)
	if err != nil {
		t.Fatalf("%s: %v", response.Patch, err)
	}
	return after
}

const (
	anna                   = "anna@example.org"
	deploymentController   = "system:serviceaccount:kube-system:deployment-controller"
	notebookController     = "system:serviceaccount:kubeflow:notebook-controller"
	mpiOperator            = "system:serviceaccount:kube-system:mpi-operator"
	podFailurePolicy       = `{rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: "True"}]}]}`
	gpuPod                 = `{spec: {restartPolicy: Never, containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}}`
	cpuPod                 = `{spec: {restartPolicy: Never, containers: [{name: main, image: x}]}}`
	createdByAnna          = `{annotations: {sluice.dev/created-by: anna@example.org}}`
	createdByBert          = `{annotations: {sluice.dev/created-by: bert@example.org}}`
	controlledByDeployment = `ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u, controller: true}]`
)

func TestMutateOnCreate(t *testing.T) {
	const job, deployment, cron = "apiVersion: batch/v1\nkind: Job\n", "apiVersion: apps/v1\nkind: Deployment\n", "apiVersion: batch/v1\nkind: CronJob\n"
	const replicaSet = "apiVersion: apps/v1\nkind: ReplicaSet\n"
	tests := map[string]struct {
		user, object, want string
		warnings           []string // a part of each
	}{
		"no creator": {
			anna, deployment + `metadata: {name: web}`, deployment + `metadata: {name: web, annotations: {sluice.dev/created-by: anna@example.org}}`, nil,
		},
		"another creator": {
			anna, deployment + `metadata: ` + createdByBert, deployment + `metadata: ` + createdByAnna,
			[]string{"metadata.annotations[sluice.dev/created-by]: must name the user who creates the object, anna@example.org"},
		},
		"the user as creator": {anna, deployment + `metadata: ` + createdByAnna, deployment + `metadata: ` + createdByAnna, nil},
		"another creator in the templates": {
			anna,
			cron + `{metadata: ` + createdByAnna + `, spec: {jobTemplate: {metadata: ` + createdByBert + `, spec: {template: {metadata: ` + createdByBert + `}}}}}`,
			cron + `{metadata: ` + createdByAnna + `, spec: {jobTemplate: {metadata: ` + createdByAnna + `, spec: {template: {metadata: ` + createdByAnna + `}}}}}`,
			[]string{"spec.jobTemplate.metadata.annotations[", "spec.jobTemplate.spec.template.metadata.annotations["},
		},
		// Lifecycle alone writes when a workload ends. Guards invariant 4 of the design.
		"annotations of lifecycle": {
			anna,
			deployment + `{metadata: {annotations: {sluice.dev/created-by: anna@example.org, sluice.dev/stopped-until: x, own: y}}, spec: {template: {metadata: {annotations: {sluice.dev/ends-at: x}}}}}`,
			deployment + `{metadata: {annotations: {sluice.dev/created-by: anna@example.org, own: y}}, spec: {template: {metadata: {annotations: {}}}}}`,
			[]string{"metadata.annotations[sluice.dev/stopped-until]: is written by Sluice alone", "spec.template.metadata.annotations[sluice.dev/ends-at]"},
		},
		"a trusted controller copies them": {
			deploymentController, replicaSet + `metadata: {annotations: {sluice.dev/created-by: b, sluice.dev/stopped-until: x}, ` + controlledByDeployment + `}`,
			replicaSet + `metadata: {annotations: {sluice.dev/created-by: b, sluice.dev/stopped-until: x}, ` + controlledByDeployment + `}`, nil,
		},
		"a trusted controller copies the creator": {
			deploymentController, replicaSet + `{metadata: {annotations: {sluice.dev/created-by: bert@example.org}, ` + controlledByDeployment + `}, spec: {template: {metadata: ` + createdByBert + `}}}`,
			replicaSet + `{metadata: {annotations: {sluice.dev/created-by: bert@example.org}, ` + controlledByDeployment + `}, spec: {template: {metadata: ` + createdByBert + `}}}`, nil,
		},
		"a trusted controller of an owner without a creator": {
			deploymentController, replicaSet + `metadata: {` + controlledByDeployment + `}`, replicaSet + `metadata: {annotations: {sluice.dev/created-by: "` + deploymentController + `"}, ` + controlledByDeployment + `}`, nil,
		},
		"a trusted controller of an object without an owner": {
			deploymentController, replicaSet + `metadata: ` + createdByBert, replicaSet + `metadata: {annotations: {sluice.dev/created-by: "` + deploymentController + `"}}`, []string{"must name the user who creates the object"},
		},
		"a user who names a controller": {
			anna, replicaSet + `metadata: {annotations: {sluice.dev/created-by: bert@example.org}, ` + controlledByDeployment + `}`,
			replicaSet + `metadata: {annotations: {sluice.dev/created-by: anna@example.org}, ` + controlledByDeployment + `}`,
			[]string{"must name the user who creates the object"},
		},
		"an operator in namespace kube-system": {
			mpiOperator, job + `metadata: {annotations: {sluice.dev/created-by: bert@example.org}, ` + controlledByDeployment + `}`,
			job + `metadata: {annotations: {sluice.dev/created-by: "` + mpiOperator + `"}, ` + controlledByDeployment + `}`,
			[]string{"must name the user who creates the object"},
		},
		"an operator that copies annotations": {
			notebookController, "apiVersion: apps/v1\nkind: StatefulSet\n" + `{metadata: {` + controlledByDeployment + `}, spec: {template: {metadata: ` + createdByAnna + `}}}`,
			"apiVersion: apps/v1\nkind: StatefulSet\n" + `{metadata: {annotations: {sluice.dev/created-by: "` + notebookController + `"}, ` + controlledByDeployment + `}, spec: {template: {metadata: {annotations: {sluice.dev/created-by: "` + notebookController + `"}}}}}`,
			[]string{"spec.template.metadata"},
		},
		"a Job with GPUs": {
			anna, job + `{metadata: {name: a}, spec: {podReplacementPolicy: TerminatingOrFailed, template: ` + gpuPod + `}}`,
			job + `{metadata: {name: a, annotations: {sluice.dev/created-by: anna@example.org}}, spec: {podReplacementPolicy: Failed, podFailurePolicy: ` + podFailurePolicy + `, template: ` + gpuPod + `}}`, nil,
		},
		"a Job without GPUs": {
			anna, job + `{metadata: ` + createdByAnna + `, spec: {template: ` + cpuPod + `}}`, job + `{metadata: ` + createdByAnna + `, spec: {template: ` + cpuPod + `}}`, nil,
		},
		"a Job with its own failure policy": {
			anna, job + `{metadata: ` + createdByAnna + `, spec: {podFailurePolicy: {rules: []}, template: ` + gpuPod + `}}`,
			job + `{metadata: ` + createdByAnna + `, spec: {podFailurePolicy: {rules: []}, template: ` + gpuPod + `}}`,
			[]string{"spec.podFailurePolicy.rules: a pod that is preempted or evicted counts as a failure of this Job; put a rule"},
		},
	}
	mutator := newMutator(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			request := createRequest(t, tc.user, flowYAML(tc.object))
			response := mutator.Handle(t.Context(), request)
			after := patchedObject(t, request, response)
			var got, want any
			if err := json.Unmarshal(after, &got); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(flowYAML(tc.want)), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(response.Warnings) != len(tc.warnings) {
				t.Fatalf("warnings %q, want %q", response.Warnings, tc.warnings)
			}
			for i, part := range tc.warnings {
				if !strings.Contains(response.Warnings[i], part) {
					t.Errorf("warning %q, want %q in it", response.Warnings[i], part)
				}
			}
			// A second mutation changes nothing.
			request.Object.Raw = after
			if second := mutator.Handle(t.Context(), request); second.Patch != nil {
				t.Errorf("the second mutation: %s", second.Patch)
			}
		})
	}
}

// flowYAML returns an object in flow style from its apiVersion, its kind and the other fields.
func flowYAML(object string) string {
	lines := strings.SplitN(object, "\n", 3)
	rest := lines[2]
	if strings.HasPrefix(rest, "{") {
		rest = rest[1 : len(rest)-1]
	}
	return "{" + lines[0] + ", " + lines[1] + ", " + rest + "}"
}

// A workload that cannot be evaluated is admitted with its creator, and the log has the reason.
func TestUnevaluatedWorkloadGetsCreator(t *testing.T) {
	request := createRequest(t, anna, `{apiVersion: batch/v1, kind: Job, spec: {template: `+gpuPod+`}}`)
	request.Namespace = "nobodys"
	response := newMutator(t).Handle(t.Context(), request)
	if !strings.Contains(string(patchedObject(t, request, response)), anna) || strings.Contains(string(response.Patch), "podFailurePolicy") {
		t.Errorf("patch %s", response.Patch)
	}
	if want := "no project owns the namespace"; !strings.Contains(response.Result.Message, want) {
		t.Errorf("message %q, want %q", response.Result.Message, want)
	}
	policyEngine, err := engine.New(engine.Options{}) // without policies yet
	if err != nil {
		t.Fatal(err)
	}
	mutator := newMutator(t)
	mutator.Evaluator.Engine = policyEngine
	request.Namespace = "work"
	response = mutator.Handle(t.Context(), request)
	if !strings.Contains(string(patchedObject(t, request, response)), anna) || !strings.Contains(response.Result.Message, "evaluate policies") {
		t.Errorf("patch %s, message %q", response.Patch, response.Result.Message)
	}
}

// A team's policy for Jobs changes and denies Jobs; a policy without a kind is for pods.
func TestJobPolicies(t *testing.T) {
	job := `{apiVersion: batch/v1, kind: Job, spec: {ttlSecondsAfterFinished: 5, template: ` + cpuPod + `}}`
	denied := newMutator(t, engine.Source{
		Name: "keep", Rego: `package keep
deny contains "keep it for an hour" if input.object.spec.ttlSecondsAfterFinished < 3600`,
		Match: v1alpha1.PolicyMatch{Kinds: []string{"Job"}},
	}).Handle(t.Context(), createRequest(t, anna, job))
	if denied.Allowed || denied.Result.Message != "keep it for an hour (policy keep)" || denied.Patch != nil {
		t.Errorf("%+v", denied.Result)
	}
	request := createRequest(t, anna, job)
	after := patchedObject(t, request, newMutator(t,
		engine.Source{Name: "keep", Rego: "package keep\noverrides.spec.ttlSecondsAfterFinished := 3600", Match: v1alpha1.PolicyMatch{Kinds: []string{"Job.batch"}}},
		engine.Source{Name: "pods", Rego: "package pods\noverrides.spec.schedulerName := \"mine\"\ndeny contains \"none\""},
	).Handle(t.Context(), request))
	if !strings.Contains(string(after), `"ttlSecondsAfterFinished":3600`) {
		t.Errorf("the patched Job is %s", after)
	}
}

func TestOnlyCreationIsMutated(t *testing.T) {
	mutator := newMutator(t)
	for _, change := range []func(*admission.Request){
		func(r *admission.Request) { r.Operation = admissionv1.Update },
		func(r *admission.Request) { r.Operation = admissionv1.Delete },
		func(r *admission.Request) { r.SubResource = "scale" },
	} {
		request := createRequest(t, anna, `{apiVersion: batch/v1, kind: Job, spec: {template: `+gpuPod+`}}`)
		change(&request)
		if response := mutator.Handle(t.Context(), request); !response.Allowed || response.Patch != nil {
			t.Errorf("%s %s: %+v", request.Operation, request.SubResource, response)
		}
	}
}

// Any input has a response whose patch applies, and none causes a panic.
func FuzzMutator(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `null`, `7`, `{`,
		`{"metadata":7,"spec":[]}`, `{"metadata":{"annotations":"x","ownerReferences":[7,{"controller":"yes"}]}}`,
		`{"metadata":{"annotations":{"sluice.dev/created-by":7}},"spec":{"template":7}}`,
		`{"spec":{"podFailurePolicy":{"rules":[{"action":7,"onExitCodes":[],"onPodConditions":{"type":1}}]},"template":{"spec":{"restartPolicy":"Never"}}}}`,
		`{"apiVersion":"batch/v1","kind":"Job","metadata":{},"spec":{"podFailurePolicy":{"rules":[{},{"onExitCodes":{"operator":"In"}}]},"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}}}`,
		`{"apiVersion":"batch/v1","kind":"Job","metadata":{"annotations":{}},"spec":{"podReplacementPolicy":"TerminatingOrFailed","template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}}}`,
	} {
		f.Add([]byte(seed))
	}
	mutator := newMutator(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "work", Object: runtime.RawExtension{Raw: raw},
			Kind: metav1.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"},
		}}
		request.UserInfo.Username = anna
		for range 2 { // as a Job, and as another kind
			if response := mutator.Handle(t.Context(), request); response.Allowed {
				patchedObject(t, request, response)
			}
			request.Kind.Kind = "CronJob"
		}
	})
}
