// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/jsonpatch"
	mergeschema "sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// Mutator answers when a workload is made.
type Mutator struct {
	// Evaluator asks the policies about Jobs, and about the pod templates of what waits in
	// a queue.
	Evaluator *evaluation.Evaluator
	// Tenants knows whose a namespace is.
	Tenants *evaluation.TenantResolver
	// FailClosed refuses what cannot be judged. Else it comes in with its maker's name alone:
	// its pods are judged when they are made.
	FailClosed bool
}

var _ admission.Handler = (*Mutator)(nil)

// Handle implements admission.Handler.
func (h *Mutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return admission.Allowed("")
	}
	var object map[string]any
	if err := utiljson.Unmarshal(req.Object.Raw, &object); err != nil {
		return evaluation.ErrorResponse(fmt.Errorf("reading the object: %w", err))
	}
	if object == nil {
		return admission.Allowed("")
	}
	after, judged, unasked := h.evaluate(ctx, &req, object)
	if unasked != nil {
		if h.FailClosed {
			return evaluation.ErrorResponse(unasked)
		}
		after, judged = object, evaluation.Result{}
	}
	after, warnings := recordCreator(after, req.UserInfo.Username)
	judged.Warnings = slices.Concat(warnings, judged.Warnings)
	response := evaluation.NewResponse(judged)
	if !response.Allowed {
		return response
	}
	if unasked != nil { // for the log
		response.Result = &metav1.Status{Code: response.Result.Code, Message: unasked.Error()}
	}
	return withPatch(response, object, after)
}

var errNoProject = errors.New("the policies were not asked: no project has the namespace")

// evaluate asks the policies about a Job, and about the templates of what is counted
// early. An error means that nobody could.
func (h *Mutator) evaluate(ctx context.Context, req *admission.Request, object map[string]any) (map[string]any, evaluation.Result, error) {
	kind := schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}
	row, _ := workloadkind.Lookup(kind)
	if kind != jobKind && !row.KueueCountsTemplates {
		return object, evaluation.Result{}, nil
	}
	owner, err := h.Tenants.Resolve(ctx, req.Namespace)
	if err != nil {
		return nil, evaluation.Result{}, fmt.Errorf("the policies were not asked: %w", err)
	}
	if owner == nil {
		return nil, evaluation.Result{}, errNoProject
	}
	review, err := pod.ReviewDocument(req)
	if err != nil {
		return nil, evaluation.Result{}, fmt.Errorf("the policies were not asked: %w", err)
	}
	q := evaluation.Request{Review: review, Tenant: owner, Operation: v1alpha1.OperationCreate}
	judged := evaluation.Result{}
	if kind == jobKind {
		if judged, err = h.evaluateJob(ctx, req.Object.Raw, q); err != nil {
			return nil, evaluation.Result{}, fmt.Errorf("the policies were not asked: %w", err)
		}
		if judged.Merged.Object != nil {
			object = judged.Merged.Object
		}
	}
	after, templates, err := h.mutateTemplates(ctx, kind, object, req.Namespace, q)
	if err != nil {
		return nil, evaluation.Result{}, fmt.Errorf("the policies were not asked: %w", err)
	}
	judged.Denials = slices.Concat(judged.Denials, templates.Denials)
	judged.Warnings = slices.Concat(judged.Warnings, templates.Warnings)
	judged.Merged.ChangedPaths = mergeChanges(judged.Merged.ChangedPaths, templates.Merged.ChangedPaths)
	return after, judged, nil
}

// jobKind is the kind that policies are asked about.
var jobKind = schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}

func (h *Mutator) evaluateJob(ctx context.Context, raw []byte, q evaluation.Request) (evaluation.Result, error) {
	q.Raw, q.IsJob = raw, true
	return h.Evaluator.Mutate(ctx, q)
}

func withPatch(response admission.Response, before, after map[string]any) admission.Response {
	operations := jsonpatch.Diff(before, after)
	if len(operations) == 0 {
		return response
	}
	written, err := json.Marshal(operations)
	if err != nil {
		return evaluation.ErrorResponse(fmt.Errorf("writing the patch: %w", err))
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = written, &kind
	return response
}

// createdByPath is where an object says who made it.
var createdByPath = []string{"metadata", "annotations", v1alpha1.AnnotationCreatedBy}

// templateCreatedByPaths is where an object says who is to have made what comes of it: a
// controller copies a template's annotations.
var templateCreatedByPaths = [][]string{
	{"spec", "template", "metadata", "annotations", v1alpha1.AnnotationCreatedBy},
	{"spec", "jobTemplate", "metadata", "annotations", v1alpha1.AnnotationCreatedBy},
	{"spec", "jobTemplate", "spec", "template", "metadata", "annotations", v1alpha1.AnnotationCreatedBy},
}

// recordCreator is the object with the user as its maker, and what its author said
// otherwise. Whatever stood there is overwritten, in the templates too, but what a
// faithful controller hands on from the object that it made this of.
func recordCreator(object map[string]any, user string) (map[string]any, []merge.Finding) {
	_, controlled := workloadkind.ControllerOf(object)
	handsOn := trustedControllers[user] && controlled
	after, warnings := object, []merge.Finding(nil)
	for _, path := range append([][]string{createdByPath}, templateCreatedByPaths...) {
		said, there := lookupPath(object, path)
		_, isText := said.(string)
		switch {
		case said == user, there && isText && handsOn, !there && len(path) > len(createdByPath):
			continue
		}
		with, ok := copyWithValue(after, path, user)
		if !ok {
			continue // the API server will say what is wrong there
		}
		after = with
		if there {
			warnings = append(warnings, merge.Finding{
				Field:   strings.Join(path[:len(path)-1], ".") + "[" + path[len(path)-1] + "]",
				Message: fmt.Sprintf("says who makes this, and that is %s; what stood there was replaced", user),
			})
		}
	}
	return after, warnings
}

// trustedControllers are those of Kubernetes' own controllers that make workloads of others:
// ReplicaSets and Jobs. They hand on what stands on the Deployment or CronJob, where
// nobody but its maker can stand.
var trustedControllers = map[string]bool{
	"system:kube-controller-manager":                          true, // all of them, where they share an identity
	"system:serviceaccount:kube-system:cronjob-controller":    true,
	"system:serviceaccount:kube-system:deployment-controller": true,
}

// lookupPath is what stands at a path, and whether anything does.
func lookupPath(object map[string]any, path []string) (any, bool) {
	for _, step := range path[:len(path)-1] {
		object = mergeschema.AsMap(object[step])
	}
	found, ok := object[path[len(path)-1]]
	return found, ok
}

// copyWithValue is a copy of the object with the text at a path, which shares with it all
// else. It is false where something on the way is no object.
func copyWithValue(object map[string]any, path []string, text string) (map[string]any, bool) {
	with := maps.Clone(object)
	if with == nil {
		with = make(map[string]any)
	}
	if len(path) == 1 {
		with[path[0]] = text
		return with, true
	}
	below := mergeschema.AsMap(object[path[0]])
	if below == nil && object[path[0]] != nil {
		return nil, false
	}
	made, ok := copyWithValue(below, path[1:], text)
	with[path[0]] = made
	return with, ok
}
