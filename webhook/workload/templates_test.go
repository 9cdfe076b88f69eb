// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/manifests"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/workload"
)

// noLatest refuses images without a version.
var noLatest = engine.Source{
	Name: "no-latest", Enforcement: v1alpha1.EnforcementDeny,
	Rego: "package no_latest\n\n" + `deny contains {"msg": "no version", "field": sprintf("spec.containers[%d].image", [i])} if {
	some i, container in input.object.spec.containers
	endswith(container.image, ":latest")
}
`,
}

// newValidator returns a validator with the policies of a mutator, in a cluster whose AdmissionParameters add a kind.
func newValidator(tb testing.TB, added ...v1alpha1.PodTemplates) *workload.Validator {
	tb.Helper()
	types, err := api.NewScheme()
	if err != nil {
		tb.Fatal(err)
	}
	mutator := newMutator(tb, noLatest)
	cache := fake.NewClientBuilder().WithScheme(types).WithObjects(
		&v1alpha1.AdmissionParameters{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName}, Spec: v1alpha1.AdmissionParametersSpec{PodTemplates: added}},
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
	return &workload.Validator{Base: evaluation.Base{
		Evaluator: mutator.Evaluator, Tenants: &evaluation.TenantResolver{Cache: cache, Clock: policytime.System()},
	}}
}

// Denials say whose pods would be denied, once, and name the fields of the object. Kinds that a setting adds are
// evaluated like others, and only if their templates change.
func TestValidateTemplates(t *testing.T) {
	validator := newValidator(t, v1alpha1.PodTemplates{Kind: "Trainer.example.org", Resource: "trainers", Paths: []string{"spec.workers[*].template"}})
	const (
		bad, good  = `spec: {containers: [{name: main, image: "x:latest"}]}`, `spec: {containers: [{name: main, image: "x:1"}]}`
		trainer    = "apiVersion: example.org/v1\nkind: Trainer\nmetadata: {name: t}\n"
		controlled = "apiVersion: example.org/v1\nkind: Trainer\nmetadata: {name: t, ownerReferences: [{apiVersion: example.org/v1, kind: Tuner, name: u, controller: true}]}\n"
	)
	for name, tc := range map[string]struct {
		before, object string
		want           string // empty: allowed
	}{
		"a Deployment": {
			"", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {" + bad + "}}",
			"pods of Deployment web would be denied: spec.template.spec.containers[0].image: no version (policy no-latest)",
		},
		"a DaemonSet": {
			"", "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: web}\nspec: {template: {" + bad + "}}",
			"pods of DaemonSet web would be denied: spec.template.spec.containers[0].image: no version (policy no-latest)",
		},
		"a generated name": {
			"", "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: run-}\nspec: {template: {" + bad + "}}",
			"pods of Job run-* would be denied: spec.template.spec.containers[0].image: no version (policy no-latest)",
		},
		"several templates": {
			"", "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: r}\nspec: {rayClusterConfig: {headGroupSpec: {template: {" + bad + "}}, workerGroupSpecs: [{template: {" + bad + "}}]}}",
			"pods of RayService r would be denied: spec.rayClusterConfig.headGroupSpec.template.spec.containers[0].image: no version (policy no-latest)\n" +
				"spec.rayClusterConfig.workerGroupSpecs[0].template.spec.containers[0].image: no version (policy no-latest)",
		},
		"a Workflow": {
			"", "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec: {templates: [{script: {image: \"x:latest\", source: echo}}]}",
			"pods of Workflow w would be denied: spec.templates[0].script.image: no version (policy no-latest)",
		},
		"an InferenceService": {
			"", "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: m}\nspec: {predictor: {containers: [{image: \"x:latest\"}]}}",
			"pods of InferenceService m would be denied: spec.predictor.containers[0].image: no version (policy no-latest)",
		},
		"a model": {"", "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: m}\nspec: {predictor: {model: {image: \"x:latest\"}}}", ""},
		"an added kind": {
			"", trainer + "spec: {workers: [{template: {" + good + "}}, {template: {" + bad + "}}]}",
			"pods of Trainer t would be denied: spec.workers[1].template.spec.containers[0].image: no version (policy no-latest)",
		},
		"an added kind, allowed":             {"", trainer + "spec: {workers: [{template: {" + good + "}}]}", ""},
		"the same template, other fields":    {trainer + "spec: {n: 1, workers: [{template: {" + bad + "}}]}", trainer + "spec: {n: 2, workers: [{template: {" + bad + "}}]}", ""},
		"another template":                   {trainer + "spec: {workers: [{template: {" + good + "}}]}", trainer + "spec: {workers: [{template: {" + bad + "}}]}", "pods of Trainer t would be denied: "},
		"one that a controller created":      {"", controlled + "spec: {workers: [{template: {" + bad + "}}]}", ""},
		"wrong types":                        {"", trainer + "spec: {workers: {a: 7, b: {template: []}}}", ""},
		"a kind that the setting lacks":      {"", strings.Replace(trainer, "Trainer", "Other", 1) + "spec: {workers: [{template: {" + bad + "}}]}", ""},
		"a group that the setting lacks":     {"", strings.Replace(trainer, "example.org", "example.com", 1) + "spec: {workers: [{template: {" + bad + "}}]}", ""},
		"a template that is no pod template": {"", trainer + "spec: {workers: [{template: {spec: {containers: 7}}}]}", ""},
		"one, and a bad one": {
			"", trainer + "spec: {workers: [{template: {spec: {containers: 7}}}, {template: {" + bad + "}}]}",
			"pods of Trainer t would be denied: spec.workers[1].template.spec.containers[0].image: no version (policy no-latest)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			request := createRequest(t, anna, tc.object)
			if tc.before != "" {
				raw, err := yaml.YAMLToJSON([]byte(tc.before))
				if err != nil {
					t.Fatal(err)
				}
				request.Operation, request.OldObject = admissionv1.Update, runtime.RawExtension{Raw: raw}
			}
			response := validator.Handle(t.Context(), request)
			if response.Allowed != (tc.want == "") {
				t.Fatalf("allowed: %v, %v", response.Allowed, response.Result)
			}
			if tc.want == "" {
				return
			}
			message := response.Result.Message
			if strings.HasSuffix(tc.want, ": ") && !strings.HasPrefix(message, tc.want) || !strings.HasSuffix(tc.want, ": ") && message != tc.want {
				t.Errorf("got  %s\nwant %s", message, tc.want)
			}
		})
	}
}

// The author learns that a template was not evaluated.
func TestWarnOfWrongTemplate(t *testing.T) {
	validator := newValidator(t, v1alpha1.PodTemplates{Kind: "Trainer.example.org", Resource: "trainers", Paths: []string{"spec.workers[*]"}})
	response := validator.Handle(t.Context(), createRequest(t, anna, "apiVersion: example.org/v1\nkind: Trainer\nspec: {workers: [{spec: {containers: 7}}]}"))
	want := []string{"spec.workers[0]: it is no pod template, so no policy was evaluated: decode pod: cannot restore slice from int64"}
	if diff := cmp.Diff(want, response.Warnings); diff != "" || !response.Allowed {
		t.Errorf("allowed: %v (-want +got)\n%s", response.Allowed, diff)
	}
}

// An object with very many templates is answered; only the first ones are evaluated.
func TestValidateManyTemplates(t *testing.T) {
	validator := newValidator(t, v1alpha1.PodTemplates{Kind: "Trainer.example.org", Resource: "trainers", Paths: []string{"spec.workers[*].template"}})
	worker := `{template: {spec: {containers: [{name: main, image: "x:latest"}]}}},`
	request := createRequest(t, anna, "apiVersion: example.org/v1\nkind: Trainer\nmetadata: {name: t}\nspec: {workers: ["+strings.Repeat(worker, 10_000)+"]}")
	response := validator.Handle(t.Context(), request)
	if response.Allowed || len(response.Result.Message) > 10_000 || !strings.Contains(response.Result.Message, "and 44 more") {
		t.Errorf("allowed: %v, %.2000s", response.Allowed, response.Result.Message)
	}
}

// The manifests register the webhook for every kind with templates, and those of added kinds without rules.
func TestWebhookRulesAreTheEvaluatedKinds(t *testing.T) {
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, kind := range workloadkind.EvaluatedKinds() {
		if len(kind.Templates) > 0 {
			want = append(want, kind.Group+"/"+kind.Resource)
		}
	}
	withoutRules := map[string]bool{}
	for _, object := range objects {
		var configuration admissionregistrationv1.ValidatingWebhookConfiguration // a mutating one has the same fields
		if !strings.HasSuffix(object.GetKind(), "WebhookConfiguration") {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &configuration); err != nil {
			t.Fatal(err)
		}
		for _, webhook := range configuration.Webhooks {
			if len(webhook.Rules) == 0 {
				withoutRules[webhook.Name] = true
			}
			for _, rule := range webhook.Rules {
				for _, resource := range rule.Resources {
					if webhook.Name == "templates.sluice.dev" {
						got = append(got, rule.APIGroups[0]+"/"+resource)
					}
					if len(rule.APIGroups) != 1 && webhook.Name == "templates.sluice.dev" {
						got = append(got, rule.APIGroups[1]+"/"+resource)
					}
				}
			}
		}
	}
	for _, kind := range want {
		if !slices.Contains(got, kind) {
			t.Errorf("no rule has %s", kind)
		}
	}
	for _, resource := range got {
		// A rule with two groups names the resources of both.
		if !slices.Contains(want, resource) && !strings.HasPrefix(resource, "jobset.x-k8s.io/") && !strings.HasPrefix(resource, "leaderworkerset.x-k8s.io/") {
			t.Errorf("a rule has %s, which has no templates", resource)
		}
	}
	if diff := cmp.Diff(map[string]bool{workloadkind.AddedTemplatesWebhook: true, workloadkind.AddedWorkloadsWebhook: true}, withoutRules); diff != "" {
		t.Errorf("webhooks without rules (-want +got)\n%s", diff)
	}
}

// The schema refuses an entry for a kind that Sluice evaluates itself, and limits what Go code limits.
func TestSchemaOfPodTemplates(t *testing.T) {
	raw, err := manifests.Files.ReadFile("crds/sluice.dev_admissionparameters.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &crd); err != nil {
		t.Fatal(err)
	}
	list := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["podTemplates"]
	rule := list.Items.Schema.XValidations[0].Rule
	var named []string
	if err := json.Unmarshal([]byte(strings.ReplaceAll(rule[strings.IndexByte(rule, '['):strings.IndexByte(rule, ']')+1], "'", `"`)), &named); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, kind := range workloadkind.EvaluatedKinds() {
		if len(kind.Templates) > 0 && strings.Contains(kind.Group, ".") { // the pattern refuses the groups of Kubernetes
			want = append(want, kind.String())
		}
	}
	slices.Sort(named)
	slices.Sort(want)
	if diff := cmp.Diff(want, named); diff != "" {
		t.Errorf("kinds that the setting refuses (-evaluated +refused)\n%s", diff)
	}
}
