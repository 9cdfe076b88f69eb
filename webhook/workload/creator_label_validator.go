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
	"sluice.dev/webhook/evaluation"
)

// CreatorLabelValidator refuses new pods whose label of the creator is that of another user: that user's Services would
// select them. It handles new pods with the label.
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
	var pod metav1.PartialObjectMetadata
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode metadata of pod: %w", err))
	}
	label, labeled := pod.Labels[v1alpha1.LabelCreator]
	user := req.UserInfo.Username
	if !labeled || label == v1alpha1.CreatorLabel(user) {
		return admission.Allowed("")
	}
	creator := user
	if reference := metav1.GetControllerOfNoCopy(&pod); reference != nil {
		isController, err := v.Creators.Controllers.IsControllerOf(ctx, user, reference)
		if err != nil {
			return evaluation.ErrorResponse(err)
		}
		if isController {
			if creator, err = v.Creators.OfOwner(ctx, req.Namespace, reference); err != nil {
				return undecided(fmt.Errorf("find the creator of the pod: %w; its label %s is checked against that user", err, v1alpha1.LabelCreator))
			}
		}
	}
	if label != v1alpha1.CreatorLabel(creator) {
		return admission.Denied(fmt.Sprintf("metadata.labels[%s]: %q is not the label of %s, who created the pod or its workload, and Services of "+
			"another user would select the pod; remove the label, or set it to %s", v1alpha1.LabelCreator, label, creator, v1alpha1.CreatorLabel(creator)))
	}
	return admission.Allowed("")
}
