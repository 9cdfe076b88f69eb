// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// all are the doors, in the order in which they are shut.
var all = []door{
	namespaceLabels,
	bindings, nodeName,
	managedKeys, controllerReferences,
	ephemeralContainers,
	priorityClasses, gpuPods,
}

// Settings are what a platform team decides about the doors.
type Settings struct {
	// Identities are believed in addition to those that every cluster has.
	Identities Identities
	// DenyGPUPodsOutside refuses pods that ask for a GPU outside of projects;
	// else they are warned.
	DenyGPUPodsOutside bool
}

// Names are those of all policies, and of their bindings.
func Names() []string {
	names := make([]string, 0, len(all))
	for _, d := range all {
		names = append(names, d.meta().Name)
	}
	return names
}

// Render makes all objects, in the order in which they are to be applied.
func Render(settings Settings) ([]*unstructured.Unstructured, error) {
	identities := builtIn.with(settings.Identities)
	var objects []runtime.Object
	for _, d := range all {
		action := admissionv1.Deny
		if d.name == gpuPods.name && !settings.DenyGPUPodsOutside {
			action = admissionv1.Warn
		}
		objects = append(objects, d.policy(identities), d.binding(action))
	}
	rendered := make([]*unstructured.Unstructured, 0, len(objects))
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("rendering %T: %w", object, err)
		}
		// Neither is ours to write.
		unstructured.RemoveNestedField(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		rendered = append(rendered, &unstructured.Unstructured{Object: content})
	}
	return rendered, nil
}
