// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// EvaluatedKind describes what the policies know of a kind's pods when an object of the kind is created or changed.
type EvaluatedKind struct {
	schema.GroupKind
	// Resource is the kind's plural in the API, such as jobs.
	Resource string
	// Templates are the fields that the policies evaluate as pods, such as spec.workers[*].template. It is empty for a
	// kind whose pods are known only when they are created.
	Templates []string
	// AtThePod says which pods are evaluated only when they are created, and why; empty if there are none.
	AtThePod string

	// find returns the templates of an object whose fields are not those of pod templates; nil for other kinds.
	find func(object map[string]any) []Template
}

// The groups of the kinds below.
const (
	groupArgo    = "argoproj.io"
	groupKServe  = "serving.kserve.io"
	groupTrainer = "trainer.kubeflow.org"
)

const argoAtThePod = "templates with `podSpecPatch`, `templateDefaults` or parameters (`{{...}}`) outside of commands: the workflow's " +
	"run determines the pod; a workflow that refers to a WorkflowTemplate has no templates of its own"

// furtherKinds are the kinds whose pods are described otherwise than by the templates of the table of kinds, and those that
// the table does not have. The sources are the API types of the kinds.
var furtherKinds = []EvaluatedKind{
	{
		GroupKind: schema.GroupKind{Group: "batch.volcano.sh", Kind: "Job"}, Resource: "jobs",
		Templates: []string{"spec.tasks[*].template"},
	},
	{
		GroupKind: schema.GroupKind{Group: groupArgo, Kind: "Workflow"}, Resource: "workflows",
		Templates: argoFields("spec"), AtThePod: argoAtThePod, find: argoTemplates("spec"),
	},
	{
		GroupKind: schema.GroupKind{Group: groupArgo, Kind: "WorkflowTemplate"}, Resource: "workflowtemplates",
		Templates: argoFields("spec"), AtThePod: argoAtThePod, find: argoTemplates("spec"),
	},
	{
		GroupKind: schema.GroupKind{Group: groupArgo, Kind: "CronWorkflow"}, Resource: "cronworkflows",
		Templates: argoFields("spec", "workflowSpec"), AtThePod: argoAtThePod, find: argoTemplates("spec", "workflowSpec"),
	},
	{
		GroupKind: schema.GroupKind{Group: groupKServe, Kind: "InferenceService"}, Resource: "inferenceservices",
		Templates: []string{"spec.predictor.containers", "spec.transformer.containers", "spec.explainer.containers"},
		AtThePod:  "components with `model`, `workerSpec` or a framework such as `sklearn`: the ServingRuntime has their container",
		find:      kserveTemplates,
	},
	{
		GroupKind: schema.GroupKind{Group: "serving.knative.dev", Kind: "Service"}, Resource: "services",
		Templates: []string{"spec.template"}, find: knativeTemplates,
	},
	{
		GroupKind: schema.GroupKind{Group: groupKServe, Kind: "ServingRuntime"}, Resource: "servingruntimes",
		AtThePod: "an InferenceService, or ModelMesh, completes its containers",
	},
	{
		GroupKind: schema.GroupKind{Group: groupTrainer, Kind: "TrainJob"}, Resource: "trainjobs",
		AtThePod: "the training runtime that it names has the pod template",
	},
	{
		GroupKind: schema.GroupKind{Group: groupTrainer, Kind: "TrainingRuntime"}, Resource: "trainingruntimes",
		AtThePod: "it has no pods of its own: a TrainJob completes its templates",
	},
	{
		GroupKind: schema.GroupKind{Group: "sparkoperator.k8s.io", Kind: "SparkApplication"}, Resource: "sparkapplications",
		AtThePod: "spark-submit composes the pods of driver and executors from the Spark configuration; `template` is only their base",
	},
	{
		GroupKind: schema.GroupKind{Group: groupKubeflow, Kind: "Workspace"}, Resource: "workspaces",
		AtThePod: "the WorkspaceKind that it names has the pod template",
	},
	{
		GroupKind: schema.GroupKind{Group: "workspace.devfile.io", Kind: "DevWorkspace"}, Resource: "devworkspaces",
		AtThePod: "the DevWorkspace operator composes the pod from the components of the devfile",
	},
	{
		GroupKind: schema.GroupKind{Group: "workload.codeflare.dev", Kind: "AppWrapper"}, Resource: "appwrappers",
		AtThePod: "its components are objects of other kinds",
	},
	{
		GroupKind: schema.GroupKind{Group: groupTekton, Kind: "PipelineRun"}, Resource: "pipelineruns",
		AtThePod: "Tekton composes the pods from the steps of its Tasks",
	},
	{
		GroupKind: schema.GroupKind{Group: groupTekton, Kind: "TaskRun"}, Resource: "taskruns",
		AtThePod: "Tekton composes the pod from the steps of its Task",
	},
	{
		GroupKind: kueueWorkloadKind, Resource: "workloads",
		AtThePod: "Kueue copies the templates of another workload, which were evaluated with it",
	},
}

// podKind is evaluated as itself, and has no template.
var podKind = schema.GroupKind{Kind: "Pod"}

// evaluatedKinds has the kinds with templates first, each part in the order of its table.
var evaluatedKinds = func() []EvaluatedKind {
	var kinds []EvaluatedKind
	for _, kind := range kindTable {
		if len(kind.Templates) == 0 || kind.GroupKind == podKind || kind.GroupKind == kueueWorkloadKind {
			continue
		}
		row := EvaluatedKind{GroupKind: kind.GroupKind, Resource: kind.Resource}
		for _, path := range kind.Templates {
			row.Templates = append(row.Templates, formatTemplatePath(path))
		}
		kinds = append(kinds, row)
	}
	kinds = append(kinds, furtherKinds...)
	for i := range kinds {
		if kinds[i].find == nil && len(kinds[i].Templates) > 0 {
			kinds[i].find = findByPaths(mustParsePaths(kinds[i].Templates))
		}
	}
	return kinds
}()

var evaluatedByKind = func() map[schema.GroupKind]EvaluatedKind {
	rows := make(map[schema.GroupKind]EvaluatedKind, len(evaluatedKinds))
	for _, kind := range evaluatedKinds {
		rows[kind.GroupKind] = kind
	}
	return rows
}()

// EvaluatedKinds returns the kinds that create pods, except pods themselves: those with templates first.
func EvaluatedKinds() []EvaluatedKind { return slices.Clone(evaluatedKinds) }

// LookupEvaluated returns what the policies know of a kind's pods, and false for a kind that Sluice does not know.
func LookupEvaluated(kind schema.GroupKind) (EvaluatedKind, bool) {
	row, ok := evaluatedByKind[kind]
	return row, ok
}

// EvaluatedTemplates returns what an object has of its pods, in a fixed order and at most MaxTemplates: its pod templates,
// and the pods that its other fields describe completely. The added templates are those of kinds that Sluice does not
// evaluate itself.
func EvaluatedTemplates(kind schema.GroupKind, object map[string]any, added AddedTemplates) []Template {
	find := evaluatedByKind[kind].find
	if find == nil {
		find = findByPaths(added[kind])
	}
	found := find(object)
	return found[:min(len(found), MaxTemplates)]
}

func findByPaths(paths [][]string) func(map[string]any) []Template {
	return func(object map[string]any) []Template {
		var found []Template
		for _, path := range paths {
			found = collectTemplates(found, object, path, "")
		}
		return found
	}
}

func formatTemplatePath(path []string) string {
	return strings.ReplaceAll(strings.Join(path, "."), "."+wildcard, "[*]")
}

func mustParsePaths(texts []string) [][]string {
	paths := make([][]string, len(texts))
	for i, text := range texts {
		path, err := ParseTemplatePath(text)
		if err != nil {
			panic(err) // a test evaluates every row
		}
		paths[i] = path
	}
	return paths
}
