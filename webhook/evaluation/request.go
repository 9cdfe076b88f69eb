// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// Base has the dependencies that the handlers of pods and workloads share.
type Base struct {
	// Evaluator evaluates the policies.
	Evaluator *Evaluator
	// Tenants resolves the project that owns a namespace.
	Tenants *TenantResolver
}

// Request is an object to evaluate.
type Request struct {
	// Policies are the policies to evaluate; nil means those in force.
	Policies *engine.Set
	// Raw is the JSON of the pod, of the template in the form of a pod, or of the Job.
	Raw []byte
	// IsJob reports whether the object is a Job.
	IsJob bool
	// Review is the admission request without its objects.
	Review document.Document
	// Tenant owns the object's namespace.
	Tenant *Tenant
	// Operation is CREATE or UPDATE.
	Operation v1alpha1.PolicyOperation
	// IsTemplate reports whether the pod does not exist yet. Owner is then the kind that will create it.
	IsTemplate bool
	Owner      workload.Owner
}

// Subject returns the values that the policies' matches are compared with. A template has those of its pod.
func (r *Request) Subject() engine.Subject {
	subject := engine.Subject{
		Operation: r.Operation, Kind: "Pod",
		Department: r.Tenant.Department, Project: r.Tenant.Project,
		Schedulers: r.Tenant.Schedulers,
	}
	if r.IsJob {
		subject.Group, subject.Kind = jobOwner.Group, jobOwner.Kind
	}
	return subject
}

func (r *Request) decodeObject() (document.Document, error) {
	object, err := document.Decode(r.Raw)
	switch {
	case err != nil:
		return object, fmt.Errorf("decode object: %w", err)
	case object.Object() == nil:
		return object, errNotAnObject
	}
	return object, nil
}

var errNotAnObject = errors.New("decode object: not a JSON object")

// DecodeObject decodes an object of an admission request; it returns nil if there is none.
func DecodeObject(raw []byte) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var object map[string]any
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	return object, nil
}

// ReviewDocument returns input.review without the objects, which the engine adds.
func ReviewDocument(req *admission.Request) (document.Document, error) {
	raw, err := EncodeReview(req, true)
	if err != nil {
		return document.Document{}, err
	}
	return document.Decode(raw)
}

// EncodeReview returns the JSON of an admission request without its objects, and without its UID, which differs
// at each attempt. It omits the name as well unless withName is set.
func EncodeReview(req *admission.Request, withName bool) ([]byte, error) {
	review := req.AdmissionRequest
	review.UID = ""
	if !withName {
		review.Name = ""
	}
	review.Object, review.OldObject = runtime.RawExtension{}, runtime.RawExtension{}
	return json.Marshal(&review)
}
