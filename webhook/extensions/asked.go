// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extensions

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/v1alpha1"
)

// MaxOpen is how many Extensions of a namespace may wait for a decision. Those who
// ask at the same instant may exceed it by as many as they are.
const MaxOpen = 10

// world is what somebody who asks is judged by.
type world struct {
	// owner is whose the namespace is.
	owner *owner
	// clock is that of the workload; nil where there is none.
	clock *v1alpha1.WorkloadClock
	// open is how many Extensions of the namespace wait for a decision.
	open int
}

// asked tells what is wrong with an Extension that is asked for, and what whoever
// asks should know. Of a project's renewal or deletion it has nothing to say.
func asked(extension *v1alpha1.Extension, w *world) (warnings []string, errs field.ErrorList) {
	spec := &extension.Spec
	if spec.Action != v1alpha1.ActionExtend {
		return nil, nil
	}
	path := field.NewPath("spec", "target")
	target := spec.Target
	version, err := schema.ParseGroupVersion(target.APIVersion)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path.Child("apiVersion"), target.APIVersion, "want a group and a version, such as batch/v1, or v1 for a Pod")}
	}
	clock := w.clock
	// Two groups may have kinds of one name; the clock's name has only a hash of them.
	if clock != nil && (clock.Spec.Root.Name != target.Name || clock.Spec.Root.Kind != target.Kind ||
		schema.FromAPIVersionAndKind(clock.Spec.Root.APIVersion, "").Group != version.Group) {
		clock = nil
	}
	name := target.Kind + " " + target.Name
	switch {
	case clock == nil:
		return nil, field.ErrorList{field.Invalid(path, name,
			"no GPU pod of such a workload has run here, so there is no time to extend; name the workload at the top, as `sluice clocks -n "+extension.Namespace+"` lists it: the Job, not a pod that it made")}
	case clock.Status.GoneSince != nil:
		return nil, field.ErrorList{field.Invalid(path, name, "this workload is gone")}
	case len(clock.Status.Extensions)+MaxOpen >= v1alpha1.MaxClockExtensions:
		return nil, field.ErrorList{field.Invalid(path, name, fmt.Sprintf(
			"it was extended %d times already, which is the most; let it end and begin anew", len(clock.Status.Extensions)))}
	case slices.ContainsFunc(clock.Status.Extensions, func(e v1alpha1.ClockExtension) bool { return e.Name == extension.Name }):
		return nil, field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), extension.Name,
			"the workload was given an extension of this name; choose another, or use metadata.generateName")}
	}
	return warn(spec, w), nil
}

// warn says what makes an Extension wait for somebody, or useless.
func warn(spec *v1alpha1.ExtensionSpec, w *world) (warnings []string) {
	status, terms := &w.clock.Status, &w.owner.department.Spec.Extensions
	if status.Limit == nil && status.Deadline == nil && status.Stopped == nil {
		warnings = append(warnings, fmt.Sprintf("nothing ends %s %s at present: it has no need of more time", spec.Target.Kind, spec.Target.Name))
	}
	switch each := terms.Each; {
	case spec.By == nil: // the schema refuses it
	case terms.SelfService == 0:
		warnings = append(warnings, fmt.Sprintf("department %s grants nothing by itself: it waits for a decision by %s", w.owner.department.Name, w.owner.who()))
	case each != nil && spec.By.Length() > each.Length():
		warnings = append(warnings, fmt.Sprintf("department %s grants at most %s by itself: %s wait for a decision by %s", w.owner.department.Name, each, spec.By, w.owner.who()))
	}
	return warnings
}
