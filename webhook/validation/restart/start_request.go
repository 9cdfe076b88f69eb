// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
)

// startRequest is a request that starts a workload.
type startRequest struct {
	namespace, name string
	// resource is the workload's resource, for its scale subresource as well.
	resource schema.GroupResource
	// kind is the workload's kind; empty for the scale subresource.
	kind schema.GroupKind
	// uid is the UID of the object, also for its scale; empty for a creation.
	uid types.UID
	// creator is the user who created the object; for the scale subresource, which does not name the creator, the user
	// who changes it.
	creator string
	// cronJob is the name of the CronJob whose controller creates the object; else empty.
	cronJob string
	// before is the old object; nil for a creation and for the scale subresource.
	before *unstructured.Unstructured
	// hash is the hash of the pod template; "" if it is not known.
	hash     string
	isCreate bool
	// byController reports whether a controller starts the workload for another object.
	byController bool
}

// scaleSubresource is the subresource by which kubectl and autoscalers change replicas.
const scaleSubresource = "scale"

// decodeStart returns nil for a request that starts no workload, or one without GPUs.
func decodeStart(req *admission.Request) (*startRequest, error) {
	start := &startRequest{
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
		start.kind = kind
		start.hash = workloadkind.TemplateHash(kind, object.Object)
	}
	switch req.Operation {
	case admissionv1.Create:
		start.isCreate, start.creator, start.cronJob = true, req.UserInfo.Username, cronJobOfRun(object, req.UserInfo.Username)
		if start.name == "" {
			start.name = object.GetName() // a generated name
		}
		if kind == cronJobKind || !isRunRequested(kind, object) || !workload.MayRequestGPUs(kind, object.Object) ||
			isStartedByController(object, kind, req.UserInfo.Username) {
			return nil, nil
		}
		return start, nil
	case admissionv1.Update:
		before, err := decodeObject(req.OldObject.Raw)
		if err != nil {
			return nil, fmt.Errorf("decode old object: %w", err)
		}
		if !workloadkind.StartsWorkload(before, object) {
			return nil, nil
		}
		start.uid, start.creator = before.GetUID(), before.GetAnnotations()[v1alpha1.AnnotationCreatedBy]
		if req.SubResource != "" {
			start.creator = req.UserInfo.Username
			return start, nil
		}
		start.before, start.byController = before, isStartedByController(before, kind, req.UserInfo.Username)
		if _, marked := workloadkind.ParseStoppedUntil(before); !marked && !workload.MayRequestGPUs(kind, object.Object) {
			return nil, nil
		}
		return start, nil
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

// queueNameLabel is the label of the workloads that Kueue suspends and starts.
const queueNameLabel = "kueue.x-k8s.io/queue-name"

// isRunRequested reports whether a new object will run, which includes a workload that Kueue suspends at creation.
func isRunRequested(kind schema.GroupKind, object *unstructured.Unstructured) bool {
	if known, ok := workloadkind.Lookup(kind); ok && known.KueueManaged && object.GetLabels()[queueNameLabel] != "" {
		return true
	}
	return workloadkind.RequestsPods(object)
}

var (
	// cronJobKind creates Jobs, which are stopped individually. It is no workload itself.
	cronJobKind = schema.GroupKind{Group: "batch", Kind: "CronJob"}
	// kueueWorkloadKind is Kueue's object for a workload. It is stopped together with the workload.
	kueueWorkloadKind = schema.GroupKind{Group: workloadkind.GroupKueue, Kind: "Workload"}
)

// isStartedByController reports whether a controller starts the object for an owner that was validated itself: a stop of
// a similar workload must not block the rollout of a running one. It trusts the owner reference only of controllers,
// and of pods, whose references an admission policy validates. The Job of a CronJob is a workload of its own.
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

// cronJobOfRun returns the name of the CronJob whose controller creates an object, or "".
func cronJobOfRun(object *unstructured.Unstructured, user string) string {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || ownerKind(owner) != cronJobKind || !workloadkind.IsKubernetesController(user) {
		return ""
	}
	return owner.Name
}

func ownerKind(owner *metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
}

var podKind = schema.GroupKind{Kind: "Pod"}
