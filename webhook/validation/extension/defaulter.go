// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// Defaulter records the requester and the approver of an Extension, and the time of the decision.
type Defaulter struct {
	// Clock is policy time.
	Clock policytime.Clock
}

var _ admission.Defaulter[*v1alpha1.Extension] = (*Defaulter)(nil)

// Handler returns the admission handler of the defaulter.
func (d *Defaulter) Handler(scheme *runtime.Scheme) admission.Handler {
	return admission.WithDefaulter(scheme, d).Handler
}

// Default implements admission.Defaulter.
func (d *Defaulter) Default(ctx context.Context, extension *v1alpha1.Extension) error {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return err
	}
	if request.Operation == admissionv1.Create {
		setCreatedBy(extension, request.UserInfo.Username)
		return nil
	}
	var before v1alpha1.Extension
	if err := json.Unmarshal(request.OldObject.Raw, &before); err != nil {
		return fmt.Errorf("decode old extension: %w", err)
	}
	if request.SubResource == statusSubresource {
		setDecidedBy(&extension.Status, &before.Status, request.UserInfo.Username, d.Clock.Now())
		return nil
	}
	setCreatedBy(extension, before.Annotations[v1alpha1.AnnotationCreatedBy])
	return nil
}

// statusSubresource is the subresource of decisions.
const statusSubresource = "status"

// setCreatedBy sets the annotation of the requester, or removes it if the requester is not known.
func setCreatedBy(extension *v1alpha1.Extension, user string) {
	annotations := maps.Clone(extension.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	if delete(annotations, v1alpha1.AnnotationCreatedBy); user != "" {
		annotations[v1alpha1.AnnotationCreatedBy] = user
	}
	extension.Annotations = annotations
}

// setDecidedBy sets the approver and the time of a new decision, and otherwise restores the old values.
func setDecidedBy(status, before *v1alpha1.ExtensionStatus, user string, now time.Time) {
	status.DecidedBy, status.DecidedAt = before.DecidedBy, before.DecidedAt
	if before.Decision == "" && status.Decision != "" {
		at := metav1.NewTime(now.Truncate(time.Second))
		status.DecidedBy, status.DecidedAt = user, &at
	}
}
