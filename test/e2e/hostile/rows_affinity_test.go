// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// antiAffinity returns a pod's required anti-affinity with fields of its term, as required and preferred terms of both kinds have them.
func antiAffinity(fields string) string { return affinity("podAntiAffinity", "required", fields) }

func affinity(kind, strength, fields string) string {
	term := "{" + fields + "}"
	if strength == "preferred" {
		term = "{weight: 1, podAffinityTerm: " + term + "}"
	}
	return fmt.Sprintf("{metadata: {labels: {tier: db}}, spec: {affinity: {%s: {%sDuringSchedulingIgnoredDuringExecution: [%s]}}}}", kind, strength, term)
}

const (
	byNode      = "topologyKey: kubernetes.io/hostname"
	everybody   = byNode + ", labelSelector: {}"
	ownReplicas = byNode + ", labelSelector: {matchLabels: {tier: db}}"
)

// With the affinity of her pods, no user keeps the pods of others off nodes or ends their work.
var _ = attacks(slices.Concat(
	reaching("of all namespaces", "namespaceSelector: {}", "the term reaches pods of other namespaces"),
	reaching("of a selected namespace", "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "+neighborhood+"}}", "the term reaches pods of other namespaces"),
	reaching("of a named namespace", "namespaces: [kube-system]", "the term reaches pods of namespace kube-system, which is not the project's"),
	[]row{
		{
			class: affinities, name: "nodes of an operating system", engines: everyEngine,
			attack: create("Pod", antiAffinity("topologyKey: kubernetes.io/os, labelSelector: {matchLabels: {tier: db}}")),
			want:   "required anti-affinity by the node label kubernetes.io/os",
		},
		narrowed("everybody in the project", antiAffinity(everybody)),
		narrowed("everybody but her", antiAffinity(everybody+", mismatchLabelKeys: [sluice.dev/creator]")),
		narrowed("another creator", antiAffinity(byNode+", labelSelector: {matchLabels: {sluice.dev/creator: x}}")),
		narrowed("all pods spread over the nodes", "{spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]}}"),
		{class: affinities, name: "her own replicas apart", engines: everyEngine, allowed: true, attack: create("Pod", antiAffinity(ownReplicas))},
		{class: affinities, name: "her own replicas together", engines: everyEngine, allowed: true, attack: create("Pod", affinity("podAffinity", "required", ownReplicas))},
	},
)...)

// reaching are rows whose terms reach pods of other namespaces: each kind of term of a pod, and the templates of other kinds.
func reaching(whose, fields, want string) []row {
	var rows []row
	for _, kind := range []string{"podAffinity", "podAntiAffinity"} {
		for _, strength := range []string{"required", "preferred"} {
			rows = append(rows, row{
				class: affinities, name: strength + " " + kind + " to pods " + whose, engines: everyEngine, want: want,
				attack: createWith("Pod", affinity(kind, strength, ownReplicas), affinity(kind, strength, ownReplicas+", "+fields)),
			})
		}
	}
	for _, kind := range []string{"Job", "CronJob", "Deployment", "StatefulSet"} {
		rows = append(rows, row{
			class: affinities, name: "a " + kind + " with anti-affinity to pods " + whose, want: want,
			attack: createPods(kind, antiAffinity(ownReplicas+", "+fields)),
		})
	}
	return rows
}

// narrowed is a row whose pod keeps only pods of its creator away.
func narrowed(name, fragment string) row {
	return row{class: affinities, name: name, engines: everyEngine, attack: create("Pod", fragment), harmless: onPod(func(pod *corev1.Pod) error {
		if pod.Labels[v1alpha1.LabelCreator] == "" {
			return errors.New("the pod has no label of its creator, by which its replicas would know each other")
		}
		return keepsOnlyOwnAway(pod, pod.Annotations[v1alpha1.AnnotationCreatedBy])
	})}
}

// keepsOnlyOwnAway checks that a pod of a user keeps no pods of others off nodes, nor lets its scheduler preempt them.
func keepsOnlyOwnAway(pod *corev1.Pod, user string) error {
	var selectors []*metav1.LabelSelector
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.PodAntiAffinity != nil {
		for _, term := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			if term.NamespaceSelector != nil || len(term.Namespaces) > 0 {
				return fmt.Errorf("a term of pod %s reaches other namespaces: %+v", pod.Name, term)
			}
			selectors = append(selectors, term.LabelSelector)
		}
	}
	for _, constraint := range pod.Spec.TopologySpreadConstraints {
		if constraint.WhenUnsatisfiable == corev1.DoNotSchedule {
			selectors = append(selectors, constraint.LabelSelector)
		}
	}
	allowed := []string{v1alpha1.CreatorLabel(user)}
	if owner := metav1.GetControllerOf(pod); owner != nil { // of an owner that was deleted meanwhile: its pods keep each other away
		allowed = append(allowed, v1alpha1.CreatorLabel(string(owner.UID)))
	}
	for _, selector := range selectors {
		if selector != nil && !slices.Contains(allowed, selector.MatchLabels[v1alpha1.LabelCreator]) {
			return fmt.Errorf("pod %s of %s keeps others away: its term selects %s", pod.Name, user, metav1.FormatLabelSelector(selector))
		}
	}
	return nil
}
