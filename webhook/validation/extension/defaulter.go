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

// Defaulter writes who asked, who decided, and when.
type Defaulter struct {
	// Clock is policy time.
	Clock policytime.Clock
}

var _ admission.Defaulter[*v1alpha1.Extension] = (*Defaulter)(nil)

// Handler is the stamper as the webhook serves it.
func (s *Defaulter) Handler(scheme *runtime.Scheme) admission.Handler {
	return admission.WithDefaulter(scheme, s).Handler
}

// Default implements admission.Defaulter.
func (s *Defaulter) Default(ctx context.Context, extension *v1alpha1.Extension) error {
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
		setDecidedBy(&extension.Status, &before.Status, request.UserInfo.Username, s.Clock.Now())
		return nil
	}
	setCreatedBy(extension, before.Annotations[v1alpha1.AnnotationCreatedBy])
	return nil
}

// statusSubresource is where decisions are written.
const statusSubresource = "status"

// setCreatedBy says on the extension who asked, whatever stood there. Where nobody knows,
// nothing stands there.
func setCreatedBy(extension *v1alpha1.Extension, by string) {
	annotations := maps.Clone(extension.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	if delete(annotations, v1alpha1.AnnotationCreatedBy); by != "" {
		annotations[v1alpha1.AnnotationCreatedBy] = by
	}
	extension.Annotations = annotations
}

// setDecidedBy says who decided and when, whatever was written there: this user, now,
// where a decision is new; else what stood there before.
func setDecidedBy(status, before *v1alpha1.ExtensionStatus, user string, now time.Time) {
	status.DecidedBy, status.DecidedAt = before.DecidedBy, before.DecidedAt
	if before.Decision == "" && status.Decision != "" {
		at := metav1.NewTime(now.Truncate(time.Second))
		status.DecidedBy, status.DecidedAt = user, &at
	}
}
