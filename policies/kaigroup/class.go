// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kaigroup

import "sluice.dev/api/v1alpha1"

// Class is what a group is worth: a PriorityClass of Sluice's.
type Class string

// The values of a group's spec.preemptibility.
const (
	preemptible    = "preemptible"
	nonPreemptible = "non-preemptible"
)

// ClassOf is the class that somebody names: one of Sluice's, or of those that
// KAI-Scheduler installs. Who names another, or none, can be preempted.
func ClassOf(name string) Class {
	switch name {
	case v1alpha1.PriorityClassInteractive, "build":
		return v1alpha1.PriorityClassInteractive
	case v1alpha1.PriorityClassInteractivePreemptible, "build-preemptible":
		return v1alpha1.PriorityClassInteractivePreemptible
	case v1alpha1.PriorityClassInference, "inference":
		return v1alpha1.PriorityClassInference
	default:
		return v1alpha1.PriorityClassTrain
	}
}

// IsOurs tells whether a class is one of Sluice's by its name.
func IsOurs(name string) bool { return name == string(ClassOf(name)) }

// Preemptible tells whether a group of the class may be ended for others.
func (c Class) Preemptible() bool {
	return c != v1alpha1.PriorityClassInteractive && c != v1alpha1.PriorityClassInference
}

func (c Class) preemptibility() string {
	if c.Preemptible() {
		return preemptible
	}
	return nonPreemptible
}
