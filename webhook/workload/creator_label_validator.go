// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	mergeschema "sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

// CreatorLabelValidator refuses new pods whose label of the creator is that of another user, since that user's Services would select
// them, and pods that keep the pods of others off their nodes, by terms that another webhook added after [AffinityNarrower]. It handles
// new pods with the label or with such terms.
type CreatorLabelValidator struct {
	// Creators resolves the creators of the owners of pods.
	Creators *CreatorResolver
}

var _ admission.Handler = (*CreatorLabelValidator)(nil)

// Handle implements admission.Handler.
func (v *CreatorLabelValidator) Handle(ctx context.Context, req admission.Request) admission.Response {
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
	if !labeled && len(terms) == 0 {
		return admission.Allowed("")
	}
	want, creator, err := v.Creators.labelOf(ctx, &req, &pod)
	if err != nil {
		return undecided(fmt.Errorf("find the creator of the pod: %w; its label %s is checked against that user", err, v1alpha1.LabelCreator))
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
	return admission.Allowed("")
}
