// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// ReasonAllCounted: every GPU pod of the project is counted by its quotas.
const ReasonAllCounted = "AllCounted"

// maxNamed is how many pods a condition names before it only counts.
const maxNamed = 10

// withoutProject selects the pods that admission did not see as a project's.
var withoutProject = func() labels.Selector {
	none, err := labels.NewRequirement(v1alpha1.LabelProject, selection.DoesNotExist, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	return labels.NewSelector().Add(*none)
}()

// uncounted looks for GPU pods that were in an adopted namespace before its
// quota; false where there is nothing to look for. It looks until it has found
// none: what came later was counted on its way in.
func (r *Reconciler) uncounted(ctx context.Context, project *v1alpha1.Project) ([]string, bool, error) {
	if held := project.Status.Namespace; held == nil || held.Origin != v1alpha1.NamespaceAdopted {
		return nil, false, nil
	}
	if c := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionUncounted); c != nil && c.Status == metav1.ConditionFalse {
		return nil, false, nil
	}
	var pods corev1.PodList
	err := r.Live.List(ctx, &pods, client.InNamespace(project.NamespaceName()), client.MatchingLabelsSelector{Selector: withoutProject})
	if err != nil {
		return nil, false, fmt.Errorf("listing the pods of namespace %s that no quota counts: %w", project.NamespaceName(), err)
	}
	return Uncounted(pods.Items), true, nil
}

// Uncounted are the names of those pods that hold GPUs and have no project,
// sorted. A pod that asks for GPUs in a way that cannot be read is one of them.
func Uncounted(pods []corev1.Pod) []string {
	var names []string
	for i := range pods {
		pod := &pods[i]
		over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if over || pod.Labels[v1alpha1.LabelProject] != "" {
			continue
		}
		if request, err := workload.ParsePod(pod); err != nil || request.AsksForGPU() {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

func uncountedCondition(names []string) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionUncounted, Status: metav1.ConditionFalse, Reason: ReasonAllCounted,
		Message: "every GPU pod is counted",
	}
	if len(names) == 0 {
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonPodsUncounted
	list := strings.Join(names[:min(maxNamed, len(names))], ", ")
	if len(names) > maxNamed {
		list += fmt.Sprintf(" and %d more", len(names)-maxNamed)
	}
	c.Message = "GPU pods that were there before the quota, which does not count them: " + list + "; delete them, and what their controllers start in their place is counted"
	return c
}
