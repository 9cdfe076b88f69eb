// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
)

// startRequest is what a request would start.
type startRequest struct {
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
	// isCreate tells that it is made.
	isCreate bool
	// byController tells that a controller starts it for another object.
	byController bool
}

// scaleSubresource is the one by which kubectl and autoscalers change replicas.
const scaleSubresource = "scale"

// decodeStart is what a request would start; nil where it starts nothing that is judged.
func decodeStart(req *admission.Request) (*startRequest, error) {
	s := &startRequest{
		namespace: req.Namespace, name: req.Name,
		resource: schema.GroupResource{Group: req.Resource.Group, Resource: req.Resource.Resource},
	}
	if req.SubResource != "" && (req.SubResource != scaleSubresource || req.Operation != admissionv1.Update) {
		return nil, nil
	}
	object, err := decodeObject(req.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	kind := schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}
	if req.SubResource == "" {
		s.kind = kind
		s.hash = workloadkind.TemplateHash(kind, object.Object)
	}
	switch req.Operation {
	case admissionv1.Create:
		s.isCreate = true
		if s.name == "" {
			s.name = object.GetName() // of a name that is generated
		}
		if kind == cronJobKind || !isRunRequested(kind, object) || !mayUseGPUs(kind, object) || isStartedByController(object, kind, req.UserInfo.Username) {
			return nil, nil
		}
		return s, nil
	case admissionv1.Update:
		before, err := decodeObject(req.OldObject.Raw)
		if err != nil {
			return nil, fmt.Errorf("decode old object: %w", err)
		}
		if !workloadkind.StartsWorkload(before, object) {
			return nil, nil
		}
		if req.SubResource != "" {
			return s, nil
		}
		s.before, s.byController = before, isStartedByController(before, kind, req.UserInfo.Username)
		if _, marked := workloadkind.ParseStoppedUntil(before); !marked && !mayUseGPUs(kind, object) {
			return nil, nil
		}
		return s, nil
	}
	return nil, nil
}

func decodeObject(raw []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &object.Object); err != nil {
		return nil, err
	}
	if object.Object == nil {
		return nil, fmt.Errorf("not an object: %.20q", raw)
	}
	return object, nil
}

// queueNameLabel is the label by which Kueue takes a workload, to start it itself.
const queueNameLabel = "kueue.x-k8s.io/queue-name"

// isRunRequested tells whether an object that is made would run: what Kueue suspended
// on its way in is started by Kueue.
func isRunRequested(kind schema.GroupKind, object *unstructured.Unstructured) bool {
	if known, ok := workloadkind.Lookup(kind); ok && known.KueueManaged && object.GetLabels()[queueNameLabel] != "" {
		return true
	}
	return workloadkind.RequestsPods(object)
}

var (
	// cronJobKind makes workloads that are stopped each for itself. It is none.
	cronJobKind = schema.GroupKind{Group: "batch", Kind: "CronJob"}
	// kueueWorkloadKind is how Kueue holds a workload. It is stopped with that, by itself.
	kueueWorkloadKind = schema.GroupKind{Group: workloadkind.GroupKueue, Kind: "Workload"}
)

// isStartedByController tells whether a controller makes or starts the object for another, with
// which it was judged: a new version of what runs must not wait for what was
// stopped beside it. That something is controlled counts only where a controller
// says so, but for pods, of which the API server's own policies see to that. The
// run of a schedule is a workload of its own.
func isStartedByController(object *unstructured.Unstructured, kind schema.GroupKind, user string) bool {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil {
		return false
	}
	if kind == podKind {
		return true
	}
	return strings.HasPrefix(user, "system:") && ownerKind(owner) != cronJobKind
}

func ownerKind(owner *metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
}

var podKind = schema.GroupKind{Kind: "Pod"}

// mayUseGPUs tells whether an object that is made may get GPUs. What runs the same
// without one is nobody's concern. Kinds that keep their pods in forms of their own
// may always; so may what cannot be read, of which the pods will be refused.
func mayUseGPUs(kind schema.GroupKind, object *unstructured.Unstructured) bool {
	templates := workloadkind.Templates(kind, object.Object)
	if len(templates) == 0 {
		return true
	}
	for _, t := range templates {
		var template corev1.PodTemplateSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(t.Body, &template); err != nil {
			return true
		}
		request, err := workload.Parse(&template)
		if err != nil || request.Form != workload.FormNone || len(request.Claims) > 0 {
			return true
		}
	}
	return false
}
