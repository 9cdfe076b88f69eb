// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/merge"
	mergeschema "sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

// Mutator handles new workloads.
type Mutator struct {
	evaluation.Base
	// FailClosed denies a workload that cannot be evaluated. Otherwise it is admitted with only its creator recorded,
	// and its pods are evaluated when they are created.
	FailClosed bool
}

var _ admission.Handler = (*Mutator)(nil)

// Handle implements admission.Handler.
func (m *Mutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return admission.Allowed("")
	}
	object, err := evaluation.DecodeObject(req.Object.Raw)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	if object == nil {
		return admission.Allowed("")
	}
	after, result, evaluationErr := m.evaluate(ctx, &req, object)
	if evaluationErr != nil {
		evaluationErr = fmt.Errorf("evaluate policies: %w", evaluationErr)
		if m.FailClosed {
			tenant, _ := m.Tenants.Resolve(ctx, req.Namespace) // its error, if any, is the same
			return m.Evaluator.ErrorResponse(req.UserInfo, tenant, evaluationErr)
		}
		after, result = object, evaluation.Result{}
	}
	after, warnings := recordCreator(after, req.UserInfo.Username)
	after, removed := removeLifecycleKeys(after, req.UserInfo.Username)
	warnings = slices.Concat(warnings, removed)
	result.Warnings = slices.Concat(warnings, result.Warnings)
	response := evaluation.NewResponse(result)
	if !response.Allowed {
		return response
	}
	if evaluationErr != nil { // for the log
		response.Result = &metav1.Status{Code: response.Result.Code, Message: evaluationErr.Error()}
	}
	if err := evaluation.SetPatch(&response, object, after); err != nil {
		return evaluation.ErrorResponse(err)
	}
	return response
}

// jobKind is the kind of workload that policies can match.
var jobKind = schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}

// evaluate evaluates the policies on a Job, and on the templates that Kueue counts. It returns the changed object.
func (m *Mutator) evaluate(ctx context.Context, req *admission.Request, object map[string]any) (map[string]any, evaluation.Result, error) {
	kind := schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}
	known, _ := workloadkind.Lookup(kind)
	if kind != jobKind && !known.KueueCountsTemplates {
		return object, evaluation.Result{}, nil
	}
	tenant, err := m.Tenants.Resolve(ctx, req.Namespace)
	if err != nil {
		return nil, evaluation.Result{}, err
	}
	if tenant == nil {
		return nil, evaluation.Result{}, errNoProject
	}
	review, err := decision.ReviewDocument(&req.AdmissionRequest)
	if err != nil {
		return nil, evaluation.Result{}, err
	}
	request := decision.Request{Review: review, Tenant: tenant, Operation: v1alpha1.OperationCreate}
	var result evaluation.Result
	if kind == jobKind {
		job := request
		job.Raw, job.IsJob = req.Object.Raw, true
		if result, err = m.Evaluator.Mutate(ctx, job); err != nil {
			return nil, evaluation.Result{}, err
		}
		if result.Merged.Object != nil {
			object = result.Merged.Object
		}
	}
	after, templates, err := m.mutateTemplates(ctx, kind, object, req.Namespace, request)
	if err != nil {
		return nil, evaluation.Result{}, err
	}
	violations := result.Violations.WithDenied(m.Evaluator.DeniedBy(templates.Denials, object))
	m.Evaluator.Count(evaluation.NewOrigin(req, tenant), violations)
	if len(result.Denials) == 0 {
		result.DenialPrefix = templates.DenialPrefix
	}
	result.Denials = slices.Concat(result.Denials, templates.Denials)
	result.Warnings = slices.Concat(result.Warnings, templates.Warnings)
	result.Merged.ChangedPaths = mergeChanges(result.Merged.ChangedPaths, templates.Merged.ChangedPaths)
	return after, result, nil
}

var errNoProject = errors.New("no project owns the namespace")

// createdByPath is the path of the annotation with an object's creator.
var createdByPath = []string{"metadata", "annotations", v1alpha1.AnnotationCreatedBy}

// templateCreatedByPaths are the paths of the same annotation in templates: a controller copies the annotations of
// its template.
var templateCreatedByPaths = [][]string{
	{"spec", "template", "metadata", "annotations", v1alpha1.AnnotationCreatedBy},
	{"spec", "jobTemplate", "metadata", "annotations", v1alpha1.AnnotationCreatedBy},
	{"spec", "jobTemplate", "spec", "template", "metadata", "annotations", v1alpha1.AnnotationCreatedBy},
}

// recordCreator returns the object with the user as its creator, and a warning for each other value that it
// replaced, in the templates as well. It keeps the value that a trusted controller copied from the owner.
func recordCreator(object map[string]any, user string) (map[string]any, []merge.Finding) {
	_, controlled := workloadkind.ControllerOf(object)
	copiesOwner := trustedControllers[user] && controlled
	after, warnings := object, []merge.Finding(nil)
	for _, path := range append([][]string{createdByPath}, templateCreatedByPaths...) {
		creator, exists := lookupPath(object, path)
		_, isText := creator.(string)
		isTemplate := len(path) > len(createdByPath)
		switch {
		case creator == user, exists && isText && copiesOwner, !exists && isTemplate:
			continue
		}
		changed, ok := copyWithValue(after, path, user)
		if !ok {
			continue // the API server reports the invalid field
		}
		after = changed
		if exists {
			warnings = append(warnings, merge.Finding{
				Field:   strings.Join(path[:len(path)-1], ".") + "[" + path[len(path)-1] + "]",
				Message: fmt.Sprintf("must name the user who creates the object, %s; the value was replaced", user),
			})
		}
	}
	return after, warnings
}

// lifecycleKeys are the annotations that lifecycle alone writes on a workload or its pods, and that act on it.
var lifecycleKeys = []string{v1alpha1.AnnotationEndsAt, v1alpha1.AnnotationStoppedUntil}

// removeLifecycleKeys returns the object without the annotations that lifecycle writes, and a warning for each that it
// removed, in the templates as well. It keeps what a trusted controller copied from the owner.
func removeLifecycleKeys(object map[string]any, user string) (map[string]any, []merge.Finding) {
	if _, controlled := workloadkind.ControllerOf(object); controlled && trustedControllers[user] {
		return object, nil
	}
	var warnings []merge.Finding
	for _, path := range append([][]string{createdByPath}, templateCreatedByPaths...) {
		for _, key := range lifecycleKeys {
			path = append(slices.Clone(path[:len(path)-1]), key)
			if _, exists := lookupPath(object, path); !exists {
				continue
			}
			object = copyWithout(object, path)
			warnings = append(warnings, merge.Finding{
				Field:   strings.Join(path[:len(path)-1], ".") + "[" + key + "]",
				Message: "is written by Sluice alone; the value was removed",
			})
		}
	}
	return object, warnings
}

// copyWithout returns a copy of the object without the value at a path, which exists.
func copyWithout(object map[string]any, path []string) map[string]any {
	changed := maps.Clone(object)
	if len(path) == 1 {
		delete(changed, path[0])
		return changed
	}
	changed[path[0]] = copyWithout(mergeschema.AsMap(object[path[0]]), path[1:])
	return changed
}

// trustedControllers are the Kubernetes controllers that create ReplicaSets and Jobs for Deployments and CronJobs.
// They copy the annotation of the owner, whose creator the webhook recorded.
var trustedControllers = map[string]bool{
	"system:kube-controller-manager":                          true, // if all controllers share one identity
	"system:serviceaccount:kube-system:cronjob-controller":    true,
	"system:serviceaccount:kube-system:deployment-controller": true,
}

// lookupPath returns the value at a path, and whether it exists.
func lookupPath(object map[string]any, path []string) (any, bool) {
	for _, step := range path[:len(path)-1] {
		object = mergeschema.AsMap(object[step])
	}
	value, ok := object[path[len(path)-1]]
	return value, ok
}

// copyWithValue returns a copy of the object with the text at a path. The copy shares all other values with the
// object. It returns false if a value on the path is not an object.
func copyWithValue(object map[string]any, path []string, text string) (map[string]any, bool) {
	changed := maps.Clone(object)
	if changed == nil {
		changed = make(map[string]any)
	}
	if len(path) == 1 {
		changed[path[0]] = text
		return changed, true
	}
	child := mergeschema.AsMap(object[path[0]])
	if child == nil && object[path[0]] != nil {
		return nil, false
	}
	value, ok := copyWithValue(child, path[1:], text)
	changed[path[0]] = value
	return changed, ok
}
