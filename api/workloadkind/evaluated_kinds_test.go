// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// trainer is a kind that Sluice does not know.
var trainer = schema.GroupKind{Group: "example.org", Kind: "Trainer"}

func addedTrainer(paths ...string) workloadkind.AddedTemplates {
	return workloadkind.NewAddedTemplates([]v1alpha1.PodTemplates{{Kind: trainer.Kind + "." + trainer.Group, Resource: "trainers", Paths: paths}})
}

// What the policies see of kinds whose fields are not those of a pod template, and where its fields are in the object.
func TestEvaluatedTemplatesOfInlinePods(t *testing.T) {
	type template struct {
		Path   string
		Body   string
		Fields map[string]string
	}
	for name, tc := range map[string]struct {
		kind   schema.GroupKind
		object string
		want   []template
	}{
		"a Service of Knative": {
			schema.GroupKind{Group: "serving.knative.dev", Kind: "Service"},
			`spec: {template: {metadata: {labels: {a: b}}, spec: {timeoutSeconds: 5, containerConcurrency: 2, containers: [{image: x}, {image: y}]}}}`,
			[]template{{
				"spec.template",
				`{metadata: {labels: {a: b}}, spec: {containers: [{image: x, name: user-container}, {image: y, name: user-container-containers-1}]}}`,
				map[string]string{"spec.containers[0].image": "spec.template.spec.containers[0].image", "": "spec.template"},
			}},
		},
		"an InferenceService with containers": {
			schema.GroupKind{Group: "serving.kserve.io", Kind: "InferenceService"},
			`{metadata: {annotations: {a: "1", b: "1"}, labels: {x: z}}, spec: {
				predictor: {minReplicas: 1, timeout: 3, annotations: {b: "2"}, nodeSelector: {n: m}, containers: [{image: x}]},
				transformer: {containers: [{name: t, image: y}], logger: {mode: all}}}}`,
			[]template{
				{
					"spec.predictor",
					`{metadata: {annotations: {a: "1", b: "2"}, labels: {x: z}}, spec: {nodeSelector: {n: m}, containers: [{image: x, name: kserve-container}]}}`,
					map[string]string{
						"spec.containers[0].image": "spec.predictor.containers[0].image", "metadata.annotations[a]": "metadata.annotations[a]",
						"metadata.annotations[b]": "spec.predictor.annotations[b]", "": "spec.predictor", "special": "spec.predictor.special",
					},
				},
				{"spec.transformer", `{metadata: {annotations: {a: "1", b: "1"}, labels: {x: z}}, spec: {containers: [{image: y, name: t}]}}`, nil},
			},
		},
		"an InferenceService with models": {
			schema.GroupKind{Group: "serving.kserve.io", Kind: "InferenceService"},
			`spec: {predictor: {model: {modelFormat: {name: x}}, containers: [{name: collocated}]}, explainer: {art: {type: SquareAttack}}, transformer: {sklearn: {}}}`, nil,
		},
		"a Workflow": {
			schema.GroupKind{Group: "argoproj.io", Kind: "Workflow"},
			`spec: {entrypoint: a, serviceAccountName: s, schedulerName: w, podPriorityClassName: p, nodeSelector: {of: workflow}, podMetadata: {labels: {l: "1", m: "1"}},
				volumes: [{name: v}], templates: [
				{name: steps, steps: [[{name: x, template: a}]]},
				{name: a, metadata: {labels: {m: "2"}}, schedulerName: t, tolerations: [{key: k}], volumes: [{name: u}], sidecars: [{name: side, image: z, mirrorVolumeMounts: true}],
				 container: {name: other, image: x, args: ["{{inputs.parameters.n}}"]}},
				{name: b, script: {image: y, source: "print({{x}})"}, initContainers: [{name: i, image: q}]},
				{name: c, containerSet: {containers: [{name: one, image: c, dependencies: [two]}]}},
				{name: patched, podSpecPatch: "containers: []", container: {image: x}},
				{name: parameters, container: {image: "x:{{workflow.parameters.version}}"}},
				7]}`,
			[]template{
				{
					"spec.templates[1]",
					`{metadata: {labels: {l: "1", m: "2"}}, spec: {restartPolicy: Never, serviceAccountName: s, schedulerName: t, priorityClassName: p, tolerations: [{key: k}],
					  volumes: [{name: u}, {name: v}], containers: [{name: main, image: x, args: ["{{inputs.parameters.n}}"]}, {name: side, image: z}]}}`,
					map[string]string{
						"spec.containers[0].image": "spec.templates[1].container.image", "spec.containers[1].image": "spec.templates[1].sidecars[0].image",
						"spec.schedulerName": "spec.templates[1].schedulerName", "spec.priorityClassName": "spec.podPriorityClassName",
						"metadata.labels[m]": "spec.templates[1].metadata.labels[m]", "spec.volumes[1].name": "spec.volumes[0].name",
						"metadata.annotations[a]": "spec.podMetadata.annotations[a]", "spec.hostPID": "spec.templates[1].hostPID",
					},
				},
				{
					"spec.templates[2]",
					`{metadata: {labels: {l: "1", m: "1"}}, spec: {restartPolicy: Never, serviceAccountName: s, schedulerName: w, priorityClassName: p, volumes: [{name: v}],
					  initContainers: [{name: i, image: q}], containers: [{name: main, image: y}]}}`,
					map[string]string{
						"spec.containers[0].image": "spec.templates[2].script.image", "spec.containers[10].image": "spec.templates[2].containers[10].image",
						"spec.initContainers[0].image": "spec.templates[2].initContainers[0].image", "metadata.labels[l]": "spec.podMetadata.labels[l]",
					},
				},
				{
					"spec.templates[3]",
					`{metadata: {labels: {l: "1", m: "1"}}, spec: {restartPolicy: Never, serviceAccountName: s, schedulerName: w, priorityClassName: p, volumes: [{name: v}],
					  containers: [{name: one, image: c}]}}`,
					map[string]string{"spec.containers[0].image": "spec.templates[3].containerSet.containers[0].image"},
				},
			},
		},
		"a CronWorkflow": {
			schema.GroupKind{Group: "argoproj.io", Kind: "CronWorkflow"},
			`spec: {workflowSpec: {templates: [{container: {image: x}}]}}`,
			[]template{{
				"spec.workflowSpec.templates[0]", `{metadata: {}, spec: {restartPolicy: Never, containers: [{name: main, image: x}]}}`,
				map[string]string{"spec.containers[0].image": "spec.workflowSpec.templates[0].container.image"},
			}},
		},
		"a patch of all pods": {
			schema.GroupKind{Group: "argoproj.io", Kind: "WorkflowTemplate"}, `spec: {podSpecPatch: "{}", templates: [{container: {image: x}}]}`, nil,
		},
		"defaults of all templates": {
			schema.GroupKind{Group: "argoproj.io", Kind: "WorkflowTemplate"}, `spec: {templateDefaults: {timeout: 30s}, templates: [{container: {image: x}}]}`, nil,
		},
		"a Job of Volcano": {
			schema.GroupKind{Group: "batch.volcano.sh", Kind: "Job"},
			`spec: {tasks: [{template: {spec: {}}}]}`,
			[]template{{"spec.tasks[0].template", `{spec: {}}`, nil}},
		},
		"a pod":           {schema.GroupKind{Kind: "Pod"}, `spec: {}`, nil},
		"an unknown kind": {schema.GroupKind{Group: "example.org", Kind: "Other"}, `spec: {template: {}}`, nil},
		"an added kind": {
			trainer, `spec: {workers: [{template: {a: 1}}, 7, {}], roles: {b: {template: {a: 2}}, a: {template: {a: 3}}}}`,
			[]template{
				{"spec.workers[0].template", `{a: 1}`, nil},
				{"spec.roles[a].template", `{a: 3}`, nil},
				{"spec.roles[b].template", `{a: 2}`, map[string]string{"spec.x": "spec.roles[b].template.spec.x"}},
			},
		},
		"wrong types": {trainer, `spec: {workers: 7, roles: []}`, nil},
		"no spec":     {trainer, `{}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			found := workloadkind.EvaluatedTemplates(tc.kind, decodeObject(t, tc.object), addedTrainer("spec.workers[*].template", "spec.roles[*].template"))
			if len(found) != len(tc.want) {
				t.Fatalf("%d templates, want %d: %v", len(found), len(tc.want), found)
			}
			for i, want := range tc.want {
				if found[i].Path != want.Path {
					t.Errorf("template %d is at %s, want %s", i, found[i].Path, want.Path)
				}
				if diff := cmp.Diff(decodeObject(t, want.Body), found[i].Body); diff != "" {
					t.Errorf("%s (-want +got)\n%s", want.Path, diff)
				}
				for field, in := range want.Fields {
					if got := found[i].Field(field); got != in {
						t.Errorf("%s of the pod is %s, want %s", field, got, in)
					}
				}
			}
		})
	}
}

// Each kind is listed once, has templates or a reason, and its fields are paths.
func TestEvaluatedKindsAreComplete(t *testing.T) {
	seen := map[schema.GroupKind]bool{}
	for _, kind := range workloadkind.EvaluatedKinds() {
		if seen[kind.GroupKind] {
			t.Errorf("%s is listed twice", kind.GroupKind)
		}
		seen[kind.GroupKind] = true
		if len(kind.Templates) == 0 && kind.AtThePod == "" || kind.Resource == "" {
			t.Errorf("%s has neither templates nor a reason, or no resource", kind.GroupKind)
		}
		for _, path := range kind.Templates {
			if _, err := workloadkind.ParseTemplatePath(path); err != nil {
				t.Errorf("%s: %v", kind.GroupKind, err)
			}
		}
	}
	for _, kind := range workloadkind.All() {
		if !seen[kind.GroupKind] && kind.Kind != "Pod" {
			t.Errorf("%s is not listed: it has templates, or its pods are evaluated when they are created", kind.GroupKind)
		}
	}
}

func TestParseTemplatePath(t *testing.T) {
	for path, want := range map[string][]string{
		"spec.template":                     {"spec", "template"},
		"spec.workers[*].template":          {"spec", "workers", "*", "template"},
		"spec.a[*]":                         {"spec", "a", "*"},
		"spec":                              nil,
		"":                                  nil,
		"metadata.template":                 nil,
		"spec.":                             nil,
		"spec..template":                    nil,
		"spec.template.":                    nil,
		"spec.a[0].template":                nil,
		"spec.a[*][*]":                      nil,
		"spec.*.template":                   nil,
		"spec[*].template":                  nil,
		"spec.template\n":                   nil,
		"spec.tem plate":                    nil,
		"spec." + strings.Repeat("a", 252):  nil,
		"spec." + strings.Repeat("a.", 126): nil,
	} {
		got, err := workloadkind.ParseTemplatePath(path)
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("%q: %v (-want +got)\n%s", path, err, diff)
		}
	}
	if _, err := workloadkind.ParseTemplatePath(strings.Repeat("a", 1<<20)); err == nil || len(err.Error()) > 200 {
		t.Errorf("a long path: %v", err)
	}
}

// An entry that the API server would refuse has no effect.
func TestNewAddedTemplates(t *testing.T) {
	added := workloadkind.NewAddedTemplates([]v1alpha1.PodTemplates{
		{Kind: "Trainer.example.org", Paths: []string{"spec.template", "metadata"}},
		{Kind: "Invalid.example.org", Paths: []string{"status.template"}},
		{Kind: "Deployment.apps", Paths: []string{"spec.other"}},
		{Kind: "Workflow.argoproj.io", Paths: []string{"spec.other"}},
		{Kind: "Pod", Paths: []string{"spec.other"}},
		{Kind: "TrainJob.trainer.kubeflow.org", Paths: slices.Repeat([]string{"spec.template"}, 100)},
	})
	var kinds []string
	for _, kind := range slices.SortedFunc(maps.Keys(added), func(a, b schema.GroupKind) int { return strings.Compare(a.Kind, b.Kind) }) {
		kinds = append(kinds, kind.String()+" "+strconv.Itoa(len(added[kind])))
	}
	if diff := cmp.Diff([]string{"TrainJob.trainer.kubeflow.org 16", "Trainer.example.org 1"}, kinds); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Objects of all templates, deep ones and wide ones are read within limits.
func TestEvaluatedTemplatesAreLimited(t *testing.T) {
	many := make([]any, 10_000)
	for i := range many {
		many[i] = map[string]any{"template": map[string]any{"spec": map[string]any{}}, "container": map[string]any{"image": "x"}}
	}
	roles := make(map[string]any, len(many))
	for i, element := range many {
		roles[strconv.Itoa(i)] = element
	}
	var deep any = many
	for range 1000 {
		deep = map[string]any{"a": deep}
	}
	spec := map[string]any{"workers": many, "roles": roles, "templates": many, "tasks": many, "a": deep}
	for name, tc := range map[string]struct {
		kind  schema.GroupKind
		added workloadkind.AddedTemplates
		want  int
	}{
		"a list":             {trainer, addedTrainer("spec.workers[*].template"), workloadkind.MaxTemplates},
		"a map":              {trainer, addedTrainer("spec.roles[*].template"), workloadkind.MaxTemplates},
		"list and map":       {trainer, addedTrainer("spec.roles[*].template", "spec.workers[*].template"), workloadkind.MaxTemplates},
		"elements without":   {trainer, addedTrainer("spec.workers[*].other[*].template"), 0},
		"deep":               {trainer, addedTrainer("spec." + strings.Repeat("a.", 120) + "b"), 0},
		"Argo":               {schema.GroupKind{Group: "argoproj.io", Kind: "Workflow"}, nil, workloadkind.MaxTemplates},
		"Volcano":            {schema.GroupKind{Group: "batch.volcano.sh", Kind: "Job"}, nil, workloadkind.MaxTemplates},
		"a kind not in them": {trainer, nil, 0},
	} {
		if found := workloadkind.EvaluatedTemplates(tc.kind, map[string]any{"spec": spec}, tc.added); len(found) != tc.want {
			t.Errorf("%s: %d templates, want %d", name, len(found), tc.want)
		}
	}
}
