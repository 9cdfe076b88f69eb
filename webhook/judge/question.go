// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"errors"
	"fmt"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/tenant"
)

// Question is what is to be judged.
type Question struct {
	// Policies are whom to ask; nil for those in force.
	Policies *engine.Set
	// Raw is the pod, the template in the form of a pod, or the Job, as JSON.
	Raw []byte
	// Job tells that it is a Job.
	Job bool
	// Review is the request that it came in, without the object.
	Review engine.Document
	// Tenant is whose it is.
	Tenant *tenant.Tenant
	// Operation is CREATE or UPDATE.
	Operation v1alpha1.PolicyOperation
	// Template tells that the pod does not exist yet. Owner is then the kind that
	// will make it.
	Template bool
	Owner    workload.Owner
}

// Subject is what policies' matches are compared with: a template is judged as
// the pod that it will be.
func (q *Question) Subject() engine.Subject {
	subject := engine.Subject{
		Operation: q.Operation, Kind: "Pod",
		Department: q.Tenant.Department, Project: q.Tenant.Project,
		Schedulers: q.Tenant.Schedulers,
	}
	if q.Job {
		subject.Group, subject.Kind = aJob.Group, aJob.Kind
	}
	return subject
}

// object is the object as it came.
func (q *Question) object() (engine.Document, error) {
	object, err := engine.Decode(q.Raw)
	switch {
	case err != nil:
		return object, fmt.Errorf("reading the object: %w", err)
	case object.Object() == nil:
		return object, errNoObject
	}
	return object, nil
}

var errNoObject = errors.New("reading the object: it is no JSON object")
