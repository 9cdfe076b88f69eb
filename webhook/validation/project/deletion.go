// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// ValidateDelete implements admission.Validator. It denies the deletion of a project whose workloads hold GPUs, unless
// the annotation sluice.dev/confirm-delete has the project's name, or its deletion was approved. An admission policy of the API server checks who may
// delete projects, so that this does not depend on the webhook.
func (v *Validator) ValidateDelete(ctx context.Context, project *v1alpha1.Project) (admission.Warnings, error) {
	namespace := project.Status.Namespace
	if namespace == nil || project.Annotations[v1alpha1.AnnotationConfirmDelete] == project.Name || !project.DeletionTimestamp.IsZero() ||
		project.Status.Phase == v1alpha1.ProjectDeleting {
		return nil, nil // the project has no namespace of its own, or the deletion is intended
	}
	var clocks v1alpha1.WorkloadClockList
	if err := v.Cached.List(ctx, &clocks, client.InNamespace(namespace.Name), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list running workloads in namespace %s: %w", namespace.Name, err)
	}
	if message := describeRunningWork(project.Name, clocks.Items); message != "" {
		return nil, apierrors.NewForbidden(projectResource, project.Name, errors.New(message))
	}
	return nil, nil
}

// maxListedWorkloads is the number of workloads that a denial lists; it counts the others.
const maxListedWorkloads = 10

// describeRunningWork lists the workloads that hold GPUs, those with the most first, and says how to confirm the
// deletion. It returns "" if there are none.
func describeRunningWork(project string, clocks []v1alpha1.WorkloadClock) string {
	var running []*v1alpha1.WorkloadClock
	for i := range clocks {
		if clocks[i].Status.GPUs != nil {
			running = append(running, &clocks[i])
		}
	}
	if len(running) == 0 {
		return ""
	}
	slices.SortFunc(running, func(a, b *v1alpha1.WorkloadClock) int {
		return cmp.Or(b.Status.GPUs.Cmp(*a.Status.GPUs), cmp.Compare(a.Name, b.Name))
	})
	var text strings.Builder
	text.WriteString("its deletion would end running GPU work:")
	for _, clock := range running[:min(len(running), maxListedWorkloads)] {
		text.WriteString("\n  " + describeWorkload(clock))
	}
	if more := len(running) - maxListedWorkloads; more > 0 {
		fmt.Fprintf(&text, "\n  and %d more", more)
	}
	fmt.Fprintf(&text, "\nTo confirm: kubectl annotate slproj %[1]s %[2]s=%[1]s, and delete it again",
		project, v1alpha1.AnnotationConfirmDelete)
	return text.String()
}

// describeWorkload describes a workload that holds GPUs.
func describeWorkload(clock *v1alpha1.WorkloadClock) string {
	s, root := &clock.Status, clock.Spec.Root
	since := "its pods have not started"
	switch {
	case s.RunningSince != nil && s.Local != nil && s.Local.RunningSince != "":
		since = "running since " + s.Local.RunningSince
	case s.RunningSince != nil:
		since = "running since " + s.RunningSince.UTC().Format("2006-01-02 15:04 MST")
	case s.StartingSince == nil:
		since = "idle"
	}
	return fmt.Sprintf("%s %s/%s: %s, created by %s, %s", root.Kind, clock.Namespace, root.Name,
		workload.Milli(s.GPUs.MilliValue()).Describe(), cmp.Or(s.CreatedBy, "an unknown user"), since)
}
