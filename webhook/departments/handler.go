// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package departments

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
)

// Validator judges Departments.
type Validator struct {
	// Reader reads Projects from a cache.
	Reader client.Reader
	// Clock is policy time.
	Clock clock.Clock
}

var _ admission.Validator[*v1alpha1.Department] = (*Validator)(nil)

// Handler is the validator as the webhook serves it.
func (v *Validator) Handler(scheme *runtime.Scheme) admission.Handler {
	return admission.WithValidator(scheme, v).Handler
}

// ValidateCreate implements admission.Validator.
func (v *Validator) ValidateCreate(_ context.Context, department *v1alpha1.Department) (admission.Warnings, error) {
	errs, warnings := Validate(department, v.Clock.Now())
	if len(errs) > 0 {
		return warnings, apierrors.NewInvalid(kind, department.Name, errs)
	}
	return warnings, nil
}

// ValidateUpdate implements admission.Validator.
func (v *Validator) ValidateUpdate(ctx context.Context, _, department *v1alpha1.Department) (admission.Warnings, error) {
	return v.ValidateCreate(ctx, department)
}

// named is how many projects a refusal names before it only counts.
const named = 5

// ValidateDelete refuses while the department has projects.
func (v *Validator) ValidateDelete(ctx context.Context, department *v1alpha1.Department) (admission.Warnings, error) {
	var projects v1alpha1.ProjectList
	if err := v.Reader.List(ctx, &projects); err != nil {
		return nil, fmt.Errorf("listing projects: %w", err)
	}
	var names []string
	for i := range projects.Items {
		if projects.Items[i].Spec.Department == department.Name {
			names = append(names, projects.Items[i].Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	slices.Sort(names)
	shown := strings.Join(names[:min(named, len(names))], ", ")
	if len(names) > named {
		shown += fmt.Sprintf(" and %d more", len(names)-named)
	}
	return nil, apierrors.NewForbidden(resource, department.Name,
		fmt.Errorf("it has %d projects: %s; delete them, or move them by their spec.department, first", len(names), shown))
}

var (
	kind     = schema.GroupKind{Group: v1alpha1.Group, Kind: "Department"}
	resource = schema.GroupResource{Group: v1alpha1.Group, Resource: "departments"}
)
