// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
)

// taintOf is the taint of a node that is being changed; nil where it has none.
func taintOf(object *corev1.Node) *taint {
	for i := range object.Spec.Taints {
		t := &object.Spec.Taints[i]
		if t.Key != v1alpha1.TaintRepartitioning {
			continue
		}
		of := &taint{generation: -1}
		if t.TimeAdded != nil {
			of.since = t.TimeAdded.Time
		}
		if generation, err := strconv.ParseInt(t.Value, 10, 64); err == nil {
			of.generation = generation
		}
		return of
	}
	return nil
}

// publishedBy are the GPUs and MIG instances in a node's allocatable.
func publishedBy(object *corev1.Node) amounts {
	of := amounts{}
	for name, quantity := range object.Status.Allocatable {
		if _, ok := v1alpha1.ProfileOfResource(name); ok || name == v1alpha1.ResourceNVIDIAGPU {
			of[name] = quantity.Value()
		}
	}
	return of
}

// unfit is why the GPUs of a node cannot be cut while it takes pods, by its labels.
func unfit(object *corev1.Node) string {
	if strategy, said := object.Labels[v1alpha1.LabelMIGStrategy]; said && strategy != "mixed" {
		return fmt.Sprintf("its device plugin has the MIG strategy %q; it must be mixed, for with another a pod cannot ask for a profile", strategy)
	}
	return ""
}

// machines are the GPUNodes as they were read, by name.
type machines map[string]readOnce

type readOnce struct {
	version string
	machine *machine
}

func (m machines) read(object *v1alpha1.GPUNode) *machine {
	version := string(object.UID) + "/" + object.ResourceVersion
	if known, ok := m[object.Name]; ok && known.version == version {
		return known.machine
	}
	of := readMachine(object)
	m[object.Name] = readOnce{version, of}
	return of
}

func (m machines) forget(there map[string]*v1alpha1.GPUNode) {
	for name := range m {
		if there[name] == nil {
			delete(m, name)
		}
	}
}
