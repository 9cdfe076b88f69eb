// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/merge"
	mergeschema "sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

// AffinityNarrower limits what a new pod keeps off its nodes to the pods of its own creator: with required anti-affinity, which schedulers
// honor in both directions and preempt pods for, one member could lock the others of the project out, or end their work. The pod and the
// selectors of its terms get the label of the creator, so that replicas run apart as before. Topology spread constraints that must hold
// are narrowed as well: they keep no pod away, but pods are preempted for them.
//
// The core policy affinity refuses terms that reach other namespaces.
type AffinityNarrower struct {
	// Creators resolves the creators of the owners of pods.
	Creators *CreatorResolver
}

var _ admission.Handler = (*AffinityNarrower)(nil)

// Handle implements admission.Handler. What is not an object where Kubernetes wants one stays: the API server refuses it.
func (n *AffinityNarrower) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return admission.Allowed("")
	}
	object, err := evaluation.DecodeObject(req.Object.Raw)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	after := runtime.DeepCopyJSON(object)
	terms := termsAboutRivals(mergeschema.AsMap(after["spec"]))
	if len(terms) == 0 {
		return admission.Allowed("")
	}
	var pod metav1.PartialObjectMetadata
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode metadata of pod: %w", err))
	}
	label, _, err := n.Creators.labelOf(ctx, &req, &pod)
	if err != nil {
		return evaluation.ErrorResponse(fmt.Errorf("find the creator of the pod, to whose pods its anti-affinity is limited: %w", err))
	}
	setLabel(mergeschema.AsMap(after["metadata"]), "labels", label)
	for _, term := range terms {
		setLabel(mergeschema.AsMap(term.value["labelSelector"]), "matchLabels", label)
		// The API server refuses a key that the selector has, too.
		if keys := mergeschema.AsList(term.value["matchLabelKeys"]); keys != nil {
			term.value["matchLabelKeys"] = slices.DeleteFunc(keys, func(key any) bool { return key == v1alpha1.LabelCreator })
		}
	}
	warnings := warnAffinity(object, func(field string) string { return field })
	response := evaluation.NewResponse(evaluation.Result{Result: decision.Result{Warnings: warnings}})
	if err := evaluation.SetPatch(&response, object, after); err != nil {
		return evaluation.ErrorResponse(err)
	}
	return response
}

// rivalTerm is a term or a constraint for which schedulers keep other pods off the nodes of a pod, or preempt them.
type rivalTerm struct {
	field string
	value map[string]any
}

// termsAboutRivals returns the terms and constraints of a pod by which others may suffer. A term without a selector is about no pod.
func termsAboutRivals(spec map[string]any) (terms []rivalTerm) {
	add := func(field string, i int, element any) {
		if term := mergeschema.AsMap(element); mergeschema.AsMap(term["labelSelector"]) != nil {
			terms = append(terms, rivalTerm{field: fmt.Sprintf("%s[%d]", field, i), value: term})
		}
	}
	antiAffinity := mergeschema.AsMap(mergeschema.AsMap(spec["affinity"])["podAntiAffinity"])
	for i, term := range mergeschema.AsList(antiAffinity["requiredDuringSchedulingIgnoredDuringExecution"]) {
		add("spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution", i, term)
	}
	for i, constraint := range mergeschema.AsList(spec["topologySpreadConstraints"]) {
		if mergeschema.AsMap(constraint)["whenUnsatisfiable"] == string(corev1.DoNotSchedule) {
			add("spec.topologySpreadConstraints", i, constraint)
		}
	}
	return terms
}

// warnAffinity warns of anti-affinity that is not about a pod or a template itself: among its creator's pods it means less. A controller
// may add labels that the template lacks. fieldOf returns the name of a pod's field.
func warnAffinity(object map[string]any, fieldOf func(string) string) (warnings []merge.Finding) {
	var pod metav1.PartialObjectMetadata
	if metadata, err := json.Marshal(object["metadata"]); err != nil || json.Unmarshal(metadata, &pod.ObjectMeta) != nil {
		return nil // the API server refuses it
	}
	for _, term := range termsAboutRivals(mergeschema.AsMap(object["spec"])) {
		var selector metav1.LabelSelector
		if text, err := json.Marshal(term.value["labelSelector"]); err != nil || json.Unmarshal(text, &selector) != nil {
			continue
		}
		parsed, err := metav1.LabelSelectorAsSelector(&selector)
		if err != nil {
			continue
		}
		requirements, _ := parsed.Requirements()
		aimsAtOthers := slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
			_, has := pod.Labels[r.Key()]
			return !r.Matches(labels.Set(pod.Labels)) && (has || r.Operator() == selection.DoesNotExist)
		})
		if len(requirements) == 0 || aimsAtOthers {
			warnings = append(warnings, merge.Finding{
				Field: fieldOf(term.field) + ".labelSelector", Message: "the term keeps only pods of the same creator away",
				Fix: "select labels that the pod itself has, so that its replicas run apart",
			})
		}
	}
	return warnings
}

// setLabel sets the label of the creator among the labels of an object or of a selector.
func setLabel(holder map[string]any, field, label string) {
	labels := mergeschema.AsMap(holder[field])
	if holder == nil || labels == nil && holder[field] != nil {
		return
	}
	if labels == nil {
		labels = make(map[string]any, 1)
		holder[field] = labels
	}
	labels[v1alpha1.LabelCreator] = label
}
