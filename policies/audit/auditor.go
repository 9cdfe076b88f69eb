// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
)

// Auditor evaluates objects that exist. It is safe for concurrent use.
type Auditor struct {
	// Policies are the policies in force.
	Policies *engine.Set
	// Evaluator evaluates them.
	Evaluator *decision.Evaluator
	// Now is the policy time of the audit.
	Now time.Time
}

// ErrUnevaluated reports that there was no time to evaluate an object.
var ErrUnevaluated = errors.New("there was no time for the policies")

var (
	podKind = schema.GroupKind{Kind: "Pod"}
	jobKind = schema.GroupKind{Group: "batch", Kind: "Job"}
)

// IsAudited reports whether an object can violate a policy: it has pods that policies evaluate, and neither has finished nor is being
// deleted.
func IsAudited(object *unstructured.Unstructured, added workloadkind.AddedTemplates) bool {
	groupKind := object.GroupVersionKind().GroupKind()
	kind, _ := workloadkind.Lookup(groupKind)
	if object.GetDeletionTimestamp() != nil || kind.IsFinished(object) {
		return false
	}
	return groupKind == podKind || len(workloadkind.EvaluatedTemplates(groupKind, object.Object, added)) > 0
}

// Evaluate returns the findings about a pod or a workload of a tenant's namespace, sorted by policy, at most one for each policy
// and template. The templates of a workload that has a controller are not evaluated, since that of its controller is. It returns
// [ErrUnevaluated] if there was no time; an object that cannot be decoded is a finding.
func (a *Auditor) Evaluate(
	ctx context.Context, object *unstructured.Unstructured, tenant *decision.Tenant,
) ([]decision.AuditFinding, error) {
	kind := object.GroupVersionKind().GroupKind()
	request := decision.Request{
		Policies: a.Policies, Now: a.Now, Tenant: tenant, Operation: v1alpha1.OperationCreate,
		IsJob: kind == jobKind,
	}
	var err error
	if request.Review, err = decision.ReviewDocument(reviewOf(object)); err != nil {
		return nil, fmt.Errorf("encode the request of %s: %w", describe(object), err)
	}
	var findings []decision.AuditFinding
	if kind == podKind || kind == jobKind {
		if request.Raw, err = json.Marshal(asCreated(object.Object)); err != nil {
			return nil, fmt.Errorf("encode %s: %w", describe(object), err)
		}
		if findings, err = a.Evaluator.Audit(ctx, request); err != nil {
			return failure(ctx, findings, err)
		}
	}
	if kind == podKind || metav1.GetControllerOf(object) != nil {
		return findings, nil
	}
	request.IsJob, request.Owner = false, workload.Owner{Group: kind.Group, Kind: kind.Kind}
	for _, template := range workloadkind.EvaluatedTemplates(kind, object.Object, tenant.AddedTemplates) {
		found, err := a.Evaluator.AuditTemplate(ctx, template, object.GetNamespace(), request)
		if err != nil {
			return failure(ctx, findings, err)
		}
		findings = append(findings, found...)
	}
	return findings, nil
}

// failure returns the findings with one about an object that cannot be evaluated, or the error for which the object was not.
func failure(ctx context.Context, findings []decision.AuditFinding, err error) ([]decision.AuditFinding, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, engine.ErrRequestDeadline), errors.Is(err, engine.ErrBusy):
		return nil, ErrUnevaluated
	}
	return append(findings, decision.AuditFinding{
		Enforcement: v1alpha1.EnforcementDeny, Result: decision.AuditFailed, Message: v1alpha1.TruncateText(err.Error(), maxFailure),
	}), nil
}

// maxFailure is the length of the message of an error in bytes.
const maxFailure = 256

// reviewOf returns the request that created an object: its user is the recorded creator.
func reviewOf(object *unstructured.Unstructured) *admissionv1.AdmissionRequest {
	kind := object.GroupVersionKind()
	request := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: object.GetNamespace(), Name: object.GetName(),
		Kind: metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind},
	}
	request.UserInfo.Username = object.GetAnnotations()[v1alpha1.AnnotationCreatedBy]
	return request
}

// createdFields are the fields of metadata that only an object that exists has.
var createdFields = []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"}

// asCreated returns a pod or a Job without what it got after its creation: the status, the identity, and the pod's node.
func asCreated(object map[string]any) map[string]any {
	created := maps.Clone(object)
	delete(created, "status")
	if metadata, ok := object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		maps.DeleteFunc(metadata, func(field string, _ any) bool { return slices.Contains(createdFields, field) })
		created["metadata"] = metadata
	}
	if spec, ok := object["spec"].(map[string]any); ok {
		spec = maps.Clone(spec)
		delete(spec, "nodeName")
		created["spec"] = spec
	}
	return created
}

func describe(object *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
}
