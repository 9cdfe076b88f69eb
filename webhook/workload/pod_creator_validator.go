// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	mergeschema "sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

// PodCreatorValidator refuses new pods that take of other users what is theirs: the label of the creator, by which that user's Services
// would select the pods; a node, by terms that another webhook added after [AffinityNarrower]; the place in a pod group; and a volume
// claim that is not shared, or does not exist yet: who creates it later would share it with the pod. It handles new pods with such a
// label, term, group or claim.
type PodCreatorValidator struct {
	// Claims reads volume claims, and resolves the creators of the owners of pods.
	Claims *ClaimReader
}

var _ admission.Handler = (*PodCreatorValidator)(nil)

// Handle implements admission.Handler.
func (v *PodCreatorValidator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return admission.Allowed("")
	}
	object, err := evaluation.DecodeObject(req.Object.Raw)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	var pod metav1.PartialObjectMetadata
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode metadata of pod: %w", err))
	}
	label, labeled := pod.Labels[v1alpha1.LabelCreator]
	terms := termsAboutRivals(mergeschema.AsMap(object["spec"]))
	claims := claimsOf(object)
	if group := pod.Labels[v1alpha1.LabelKueuePodGroup]; !labeled && len(terms) == 0 && group == "" && len(claims) == 0 {
		return admission.Allowed("")
	}
	want, creator, err := v.Claims.Creators.labelOf(ctx, &req, &pod)
	if err != nil {
		return undecided(fmt.Errorf("find the creator of the pod: %w; its label, its affinity, its group and its volume claims are compared with that user", err))
	}
	switch {
	case labeled && label != want && creator == "":
		return admission.Denied(fmt.Sprintf("metadata.labels[%s]: %q is the label of another workload or user, and the creator of the "+
			"pod's workload is not known; create the workload again, without the label", v1alpha1.LabelCreator, label))
	case labeled && label != want:
		return admission.Denied(fmt.Sprintf("metadata.labels[%s]: %q is not the label of %s, who created the pod or its workload, and Services of "+
			"another user would select the pod; remove the label, or set it to %s", v1alpha1.LabelCreator, label, creator, want))
	}
	for _, term := range terms {
		selected := mergeschema.AsMap(mergeschema.AsMap(term.value["labelSelector"])["matchLabels"])[v1alpha1.LabelCreator]
		if selected != want {
			return admission.Denied(fmt.Sprintf("%s.labelSelector: the term keeps pods of others away: another admission webhook added it "+
				"after Sluice's; add matchLabels %s: %s to it in the workload", term.field, v1alpha1.LabelCreator, want))
		}
	}
	for _, claim := range claims {
		problem, err := v.Claims.problem(ctx, req.Namespace, claim.name, creator)
		if err != nil {
			return evaluation.ErrorResponse(err)
		}
		if problem != "" {
			return admission.Denied(claim.field + ": " + problem)
		}
	}
	return v.validateGroup(ctx, &pod, req.Namespace, want)
}

// validateGroup refuses a pod that joins the pod group of another creator than the one with the label: Kueue admits a group only when
// it has exactly its pods, and deletes the others. A group belongs to the creator of its first pod.
func (v *PodCreatorValidator) validateGroup(
	ctx context.Context, pod *metav1.PartialObjectMetadata, namespace, label string,
) admission.Response {
	group := pod.Labels[v1alpha1.LabelKueuePodGroup]
	if group == "" {
		return admission.Allowed("")
	}
	members := &metav1.PartialObjectMetadataList{}
	members.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	inGroup := client.MatchingLabels{v1alpha1.LabelKueuePodGroup: group}
	err := v.Claims.Creators.Live.List(ctx, members, client.InNamespace(namespace), inGroup, client.Limit(500))
	switch {
	case err != nil:
		return undecided(fmt.Errorf("list the pods of group %s: %w", group, err))
	case len(members.Items) == 0:
		return admission.Allowed("")
	}
	first := slices.MinFunc(members.Items, func(a, b metav1.PartialObjectMetadata) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	if first.Labels[v1alpha1.LabelCreator] == label {
		return admission.Allowed("")
	}
	first.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	creator, err := v.Claims.Creators.Of(ctx, &first)
	switch reference := metav1.GetControllerOfNoCopy(&first); {
	case errors.Is(err, errUnknownCreator) && reference != nil && v1alpha1.CreatorLabel(string(reference.UID)) == label:
		return admission.Allowed("") // the same owner, whose creator is not known
	case errors.Is(err, errUnknownCreator):
		creator = "another workload"
	case err != nil:
		return undecided(fmt.Errorf("find the creator of pod group %s: %w", group, err))
	case v1alpha1.CreatorLabel(creator) == label:
		return admission.Allowed("")
	}
	return admission.Denied(fmt.Sprintf("metadata.labels[%s]: %q is the pod group of %s, whose pods would wait for this one; "+
		"choose another name", v1alpha1.LabelKueuePodGroup, group, creator))
}
