// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restarts

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/workload/kinds"
)

// start is what a request would start.
type start struct {
	namespace, name string
	// resource is what the request is about: that of the workload, also where its
	// scale is asked for.
	resource schema.GroupResource
	// kind is the workload's; empty where only its scale is known.
	kind schema.GroupKind
	// before is the object that would be started again; nil where it is made, or
	// only its scale is known.
	before *unstructured.Unstructured
	// hash is that of what it runs; empty where that cannot be told.
	hash string
	// creates tells that it is made.
	creates bool
	// handedOut tells that a controller starts it for another object.
	handedOut bool
}

// scaleSubresource is the one by which kubectl and autoscalers change replicas.
const scaleSubresource = "scale"

// read is what a request would start; nil where it starts nothing that is judged.
func read(req *admission.Request) (*start, error) {
	s := &start{
		namespace: req.Namespace, name: req.Name,
		resource: schema.GroupResource{Group: req.Resource.Group, Resource: req.Resource.Resource},
	}
	if req.SubResource != "" && (req.SubResource != scaleSubresource || req.Operation != admissionv1.Update) {
		return nil, nil
	}
	object, err := decoded(req.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	kind := schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}
	if req.SubResource == "" {
		s.kind = kind
		s.hash = kinds.TemplateHash(kind, object.Object)
	}
	switch req.Operation {
	case admissionv1.Create:
		s.creates = true
		if s.name == "" {
			s.name = object.GetName() // of a name that is generated
		}
		if kind == schedule || !asksToRun(kind, object) || !asksForGPUs(kind, object) || handedOut(object, kind, req.UserInfo.Username) {
			return nil, nil
		}
		return s, nil
	case admissionv1.Update:
		before, err := decoded(req.OldObject.Raw)
		if err != nil {
			return nil, fmt.Errorf("reading the object before the change: %w", err)
		}
		if !kinds.Starts(before, object) {
			return nil, nil
		}
		if req.SubResource != "" {
			return s, nil
		}
		s.before, s.handedOut = before, handedOut(before, kind, req.UserInfo.Username)
		if _, marked := kinds.StoppedUntil(before); !marked && !asksForGPUs(kind, object) {
			return nil, nil
		}
		return s, nil
	}
	return nil, nil
}

func decoded(raw []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &object.Object); err != nil {
		return nil, err
	}
	if object.Object == nil {
		return nil, fmt.Errorf("it is %.20q", raw)
	}
	return object, nil
}

// queueName is the label by which Kueue takes a workload, to start it itself.
const queueName = "kueue.x-k8s.io/queue-name"

// asksToRun tells whether an object that is made would run: what Kueue suspended
// on its way in is started by Kueue.
func asksToRun(kind schema.GroupKind, object *unstructured.Unstructured) bool {
	if known, ok := kinds.Of(kind); ok && known.Queued && object.GetLabels()[queueName] != "" {
		return true
	}
	return kinds.AsksToRun(object)
}

var (
	// schedule makes workloads that are stopped each for itself. It is none.
	schedule = schema.GroupKind{Group: "batch", Kind: "CronJob"}
	// queued is how Kueue holds a workload. It is stopped with that, by itself.
	queued = schema.GroupKind{Group: kinds.WorkloadGroup, Kind: "Workload"}
)

// handedOut tells whether a controller makes or starts the object for another, with
// which it was judged: a new version of what runs must not wait for what was
// stopped beside it. That something is controlled counts only where a controller
// says so, but for pods, of which the API server's own policies see to that. The
// run of a schedule is a workload of its own.
func handedOut(object *unstructured.Unstructured, kind schema.GroupKind, user string) bool {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil {
		return false
	}
	if kind == pod {
		return true
	}
	return strings.HasPrefix(user, "system:") && kindOf(owner) != schedule
}

func kindOf(owner *metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
}
