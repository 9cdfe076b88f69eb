// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object identifies an object in reports.
type Object struct {
	Namespace  string    `json:"namespace"`
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid,omitempty"`
}

func newObject(object *unstructured.Unstructured) Object {
	return Object{
		Namespace: object.GetNamespace(), APIVersion: object.GetAPIVersion(), Kind: object.GetKind(),
		Name: object.GetName(), UID: object.GetUID(),
	}
}

// maxOwnerDepth limits the controllers between a pod and its root, since references can form a circle.
const maxOwnerDepth = 8

// maxOwners limits the known controllers. The root of an object beyond is its direct controller.
const maxOwners = 200_000

// owners knows the controllers of workloads that have one.
type owners struct {
	controllers map[ownerKey]*metav1.OwnerReference
}

type ownerKey struct{ namespace, group, kind, name string }

// add records the controller of a workload.
func (o *owners) add(object *unstructured.Unstructured) {
	controller := metav1.GetControllerOf(object)
	if controller == nil || len(o.controllers) >= maxOwners {
		return
	}
	if o.controllers == nil {
		o.controllers = make(map[ownerKey]*metav1.OwnerReference)
	}
	kind := object.GroupVersionKind()
	o.controllers[ownerKey{object.GetNamespace(), kind.Group, kind.Kind, object.GetName()}] = controller
}

// root returns the object at the top of an object's controllers, as far as they are known: that which its author can change.
func (o *owners) root(object *unstructured.Unstructured) Object {
	root := newObject(object)
	controller := metav1.GetControllerOf(object)
	for range maxOwnerDepth {
		if controller == nil {
			return root
		}
		root.APIVersion, root.Kind, root.Name, root.UID = controller.APIVersion, controller.Kind, controller.Name, controller.UID
		version, err := schema.ParseGroupVersion(controller.APIVersion)
		if err != nil {
			return root
		}
		controller = o.controllers[ownerKey{root.Namespace, version.Group, root.Kind, root.Name}]
	}
	return root
}
