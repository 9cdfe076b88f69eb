// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// claim asks the API server whether there is somebody else's object of that name,
// which the fault is for people about.
func (a *Applier) claim(ctx context.Context, place Place, object *unstructured.Unstructured) (fault, err error) {
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(object.GroupVersionKind())
	err = a.Live.Get(ctx, client.ObjectKeyFromObject(object), there)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", at(object), err)
	}
	there.SetGroupVersionKind(object.GroupVersionKind())
	return foreign(there, place), nil
}

// foreign is why an object that is there may not be taken for the place's subject;
// nil where it is the subject's, or was handed over to it.
func foreign(there *metav1.PartialObjectMetadata, place Place) error {
	if there.Annotations[v1alpha1.AnnotationAdoptBy] == place.Name {
		return nil
	}
	handOver := fmt.Sprintf("kubectl annotate %s %s %s=%s", resourceOf(there), there.Name, v1alpha1.AnnotationAdoptBy, place.Name)
	if there.Namespace != "" {
		handOver += " --namespace " + there.Namespace
	}
	if other := otherThan(place, there); other != "" {
		return fmt.Errorf("%s is there for %s; one of the two has to give it another name, or it is handed over with: %s", at(there), other, handOver)
	}
	// One that lifecycle applied stays lifecycle's when its label is taken off.
	if there.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice || appliedByUs(there) {
		return nil
	}
	return fmt.Errorf("%s is there and is not Sluice's; rename or delete it, or hand it over with: %s", at(there), handOver)
}

// otherThan is the subject that the object's labels name, where that is not the
// place's. A label that names one which cannot have the object, by its name or since
// the namespace is the project's, was changed by somebody.
func otherThan(place Place, there *metav1.PartialObjectMetadata) string {
	for _, kind := range []SubjectKind{ForProject, ForDepartment, ForNodePool} {
		name := there.Labels[kind.Label()]
		if name == "" || kind == place.Kind && name == place.Name {
			continue
		}
		other := ClusterWide(kind, name)
		if theirs := there.Namespace == "" && other.mayName(there.Name); theirs || !appliedByUs(there) {
			return other.String()
		}
	}
	return ""
}

// appliedByUs tells whether lifecycle applied the object.
func appliedByUs(there *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(there.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == v1alpha1.FieldManagerLifecycle && entry.Operation == metav1.ManagedFieldsOperationApply
	})
}

// resourceOf is how kubectl calls the kind of an object.
func resourceOf(there *metav1.PartialObjectMetadata) string {
	gvk := there.GroupVersionKind()
	name := strings.ToLower(gvk.Kind)
	if gvk.Group != "" {
		name += "." + gvk.Group
	}
	return name
}
