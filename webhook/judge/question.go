// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/tenant"
)

// Question is what is to be judged.
type Question struct {
	// Raw is the pod, or the template in the form of a pod, as JSON.
	Raw []byte
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
	return engine.Subject{
		Operation: q.Operation, Kind: "Pod",
		Department: q.Tenant.Department, Project: q.Tenant.Project,
	}
}

// shape is one state of the object, in all the forms in which it is needed.
type shape struct {
	raw      []byte
	object   map[string]any
	document engine.Document
	request  workload.Request
}

// shapeOf reads a pod's JSON. The error is workload.Malformed where the pod asks
// for what cannot be.
func (q *Question) shapeOf(raw []byte, object map[string]any) (shape, error) {
	s := shape{raw: raw, object: object}
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		return s, fmt.Errorf("reading the pod: %w", err)
	}
	var err error
	if s.request, err = q.request(&pod); err != nil {
		return s, err
	}
	if object == nil {
		if err := utiljson.Unmarshal(raw, &s.object); err != nil {
			return s, fmt.Errorf("reading the pod: %w", err)
		}
	}
	if s.document, err = engine.Decode(raw); err != nil {
		return s, fmt.Errorf("reading the pod: %w", err)
	}
	return s, nil
}

func (q *Question) request(pod *corev1.Pod) (workload.Request, error) {
	if !q.Template {
		return workload.ParsePod(pod)
	}
	request, err := workload.Parse(&corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec})
	request.Owner = q.Owner
	return request, err
}
