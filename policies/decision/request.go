// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// Request is an object to evaluate.
type Request struct {
	// Policies are the policies to evaluate.
	Policies *engine.Set
	// Now is the time of the request, in policy time.
	Now time.Time
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

	// isExisting reports whether the object was admitted before.
	isExisting bool
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

// decode returns the object, and a result that has it, with the denials for its size.
func (r *Request) decode() (document.Document, Result, error) {
	object, err := document.Decode(r.Raw)
	switch {
	case err != nil:
		return object, Result{}, fmt.Errorf("decode object: %w", err)
	case object.Object() == nil:
		return object, Result{}, errNotAnObject
	}
	return object, Result{Original: object.Object(), Denials: denialsForSize(object.Object(), len(r.Raw), r.Tenant.SizeLimits)}, nil
}

var errNotAnObject = errors.New("decode object: not a JSON object")

// ReviewDocument returns input.review without the objects, which the engine adds.
func ReviewDocument(req *admissionv1.AdmissionRequest) (document.Document, error) {
	raw, err := EncodeReview(req, true)
	if err != nil {
		return document.Document{}, err
	}
	return document.Decode(raw)
}

// EncodeReview returns the JSON of an admission request without its objects, and without its UID, which differs
// at each attempt. It omits the name as well unless withName is set.
func EncodeReview(req *admissionv1.AdmissionRequest, withName bool) ([]byte, error) {
	review := *req
	review.UID = ""
	if !withName {
		review.Name = ""
	}
	review.Object, review.OldObject = runtime.RawExtension{}, runtime.RawExtension{}
	return json.Marshal(&review)
}
