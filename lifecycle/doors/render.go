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
	workloadKeys, queuedWorkloads,
	queueNames, queueObjects,
	othersWorkloads, projectDeletion,
	rendered, longEnds,
	kaiQueues, podGroups, podsGroups, deviceVariables, otherManagers,
	deviceClasses, nodeChanges,
	priorityClasses, gpuClaims,
	gpuPods, // the last: where it is shut, all are
}

// Settings are what a platform team decides about the doors.
type Settings struct {
	// Identities are believed in addition to those that every cluster has.
	Identities Identities
	// DeviceClasses are those whose devices are GPUs, in addition to NVIDIA's own.
	DeviceClasses []string
	// DenyGPUPodsOutside refuses pods and claims that ask for a GPU outside of
	// projects; else they are warned.
	DenyGPUPodsOutside bool
}

// variables are what every door's CEL may speak of.
func (s Settings) variables() []admissionv1.Variable {
	return append(builtIn.with(s.Identities).variables(), gpuNames(s.DeviceClasses)...)
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
	common := settings.variables()
	var objects []runtime.Object
	for _, d := range all {
		action := admissionv1.Deny
		if d.mayWarn && !settings.DenyGPUPodsOutside {
			action = admissionv1.Warn
		}
		objects = append(objects, d.policy(common), d.binding(action))
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
