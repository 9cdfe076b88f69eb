// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extensions

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/access"
)

// Validator judges Extensions that are asked for, and decisions on them.
type Validator struct {
	// Cached reads Projects (by tenant.ProjectsByNamespace), Departments and
	// WorkloadClocks.
	Cached client.Reader
	// Live lists the Extensions of a namespace: they are too seldom asked for to be
	// kept in memory.
	Live client.Reader
	// Administrators knows who administers departments.
	Administrators access.Administrators
}

var _ admission.Validator[*v1alpha1.Extension] = (*Validator)(nil)

// Handler is the validator as the webhook serves it.
func (v *Validator) Handler(scheme *runtime.Scheme) admission.Handler {
	return admission.WithValidator(scheme, v).Handler
}

// ValidateCreate implements admission.Validator: somebody asks.
func (v *Validator) ValidateCreate(ctx context.Context, extension *v1alpha1.Extension) (admission.Warnings, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, err
	}
	w, err := v.world(ctx, request.Namespace, extension)
	if err != nil {
		return nil, err
	}
	if w.owner == nil {
		return nil, nobodys(extension, request.Namespace)
	}
	if by := extension.Annotations[v1alpha1.AnnotationCreatedBy]; by != request.UserInfo.Username {
		return nil, forbidden(extension, "metadata.annotations[%s] must name whoever asks, %s, and not %q", v1alpha1.AnnotationCreatedBy, request.UserInfo.Username, by)
	}
	if w.open >= MaxOpen {
		return nil, forbidden(extension, "in namespace %s %d extensions wait for a decision, and more than %d are not taken; wait for %s to decide, or delete one of those that are not needed (`sluice extensions -n %s`)",
			request.Namespace, w.open, MaxOpen, w.owner.who(), request.Namespace)
	}
	warnings, errs := asked(extension, &w)
	if len(errs) > 0 {
		return warnings, apierrors.NewInvalid(kind, extension.Name, errs)
	}
	return warnings, nil
}

// ValidateUpdate implements admission.Validator: somebody decides. What else
// changes of an Extension is the schema's to judge.
func (v *Validator) ValidateUpdate(ctx context.Context, before, extension *v1alpha1.Extension) (admission.Warnings, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil || request.SubResource != subresourceStatus {
		return nil, err
	}
	change := changeOf(&before.Status, &extension.Status)
	if change == nothing {
		return nil, nil
	}
	o, err := ownerOf(ctx, v.Cached, request.Namespace)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, nobodys(extension, request.Namespace)
	}
	may, err := decides(ctx, request.UserInfo, o, v.Administrators)
	switch {
	case err != nil:
		return nil, err
	case !may:
		return nil, forbidden(extension, "%s does not decide on it: %s does", request.UserInfo.Username, o.who())
	case change == settled:
		return nil, forbidden(extension, "it was decided already (%s): a decision stands; whoever wants something else asks again", before.Status.Decision)
	case change == more:
		return nil, forbidden(extension, "status: only the decision and the message can be written by whoever decides; the rest is Sluice's")
	case change == undecided:
		return nil, forbidden(extension, "status.decision: want %s or %s", v1alpha1.ExtensionApproved, v1alpha1.ExtensionRefused)
	case extension.Status.DecidedBy != request.UserInfo.Username:
		return nil, forbidden(extension, "status.decidedBy must name whoever decides, %s, and not %q", request.UserInfo.Username, extension.Status.DecidedBy)
	}
	return nil, nil
}

// ValidateDelete implements admission.Validator: who may delete is RBAC's to say.
func (v *Validator) ValidateDelete(context.Context, *v1alpha1.Extension) (admission.Warnings, error) {
	return nil, nil
}

// world is what somebody who asks is judged by.
func (v *Validator) world(ctx context.Context, namespace string, extension *v1alpha1.Extension) (w world, err error) {
	if w.owner, err = ownerOf(ctx, v.Cached, namespace); w.owner == nil || err != nil {
		return w, err
	}
	var all v1alpha1.ExtensionList
	if err := v.Live.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return w, fmt.Errorf("listing the extensions of namespace %s: %w", namespace, err)
	}
	for i := range all.Items {
		if all.Items[i].Status.Decision == "" {
			w.open++
		}
	}
	if extension.Spec.Action != v1alpha1.ActionExtend {
		return w, nil
	}
	target := extension.Spec.Target
	name := v1alpha1.WorkloadClockName(schema.FromAPIVersionAndKind(target.APIVersion, "").Group, target.Kind, target.Name)
	var clock v1alpha1.WorkloadClock
	switch err := v.Cached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &clock); {
	case err == nil:
		w.clock = &clock
	case !apierrors.IsNotFound(err):
		return w, fmt.Errorf("reading clock %s/%s: %w", namespace, name, err)
	}
	return w, nil
}

var (
	kind     = schema.GroupKind{Group: v1alpha1.Group, Kind: "Extension"}
	resource = schema.GroupResource{Group: v1alpha1.Group, Resource: "extensions"}
)

func forbidden(extension *v1alpha1.Extension, format string, args ...any) error {
	return apierrors.NewForbidden(resource, extension.Name, fmt.Errorf(format, args...))
}

func nobodys(extension *v1alpha1.Extension, namespace string) error {
	return forbidden(extension, "no project has namespace %s, so nothing there has a limit; extensions are asked for in a project's namespace", namespace)
}
