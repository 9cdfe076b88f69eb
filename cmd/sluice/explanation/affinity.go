// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"sluice.dev/api/v1alpha1"
)

// describeAntiAffinity names a term for which a scheduler keeps a pod off a node, and whose pod is there; "" if no pod of the namespace
// does. Admission refuses terms that reach other namespaces.
func (f *Facts) describeAntiAffinity(pod *corev1.Pod) string {
	for i := range f.Neighbors {
		other := &f.Neighbors[i]
		ended := other.Status.Phase == corev1.PodSucceeded || other.Status.Phase == corev1.PodFailed
		if other.UID == pod.UID || other.Spec.NodeName == "" || ended {
			continue
		}
		if term := termAgainst(other, pod); term != nil {
			return fmt.Sprintf("Pod %s keeps it away by its anti-affinity to pods with %s, from each node with the same %s.",
				owned(other), describeTerm(term), shorten(term.TopologyKey))
		}
		if term := termAgainst(pod, other); term != nil {
			return fmt.Sprintf("By its own anti-affinity to pods with %s it does not run where pod %s does, on a node with the same %s.",
				describeTerm(term), owned(other), shorten(term.TopologyKey))
		}
	}
	return ""
}

// termAgainst returns the first term by which a pod keeps another one of its namespace away; nil if there is none.
func termAgainst(pod, other *corev1.Pod) *corev1.PodAffinityTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	terms := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	i := slices.IndexFunc(terms, func(term corev1.PodAffinityTerm) bool {
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		return err == nil && selector.Matches(labels.Set(other.Labels))
	})
	if i < 0 {
		return nil
	}
	return &terms[i]
}

// describeTerm returns the labels that a term selects, without that of the creator, which admission adds.
func describeTerm(term *corev1.PodAffinityTerm) string {
	selector := term.LabelSelector.DeepCopy()
	delete(selector.MatchLabels, v1alpha1.LabelCreator)
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return "any labels"
	}
	return shorten(metav1.FormatLabelSelector(selector))
}

// owned returns the name of a pod and who it belongs to: its controller, or the user who created it.
func owned(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return fmt.Sprintf("%s (of %s %s)", pod.Name, shorten(owner.Kind), shorten(owner.Name))
	}
	if creator := pod.Annotations[v1alpha1.AnnotationCreatedBy]; creator != "" {
		return fmt.Sprintf("%s (of %s)", pod.Name, shorten(creator))
	}
	return pod.Name
}
