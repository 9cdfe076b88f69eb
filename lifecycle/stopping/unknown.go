// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/workload/kinds"
)

var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

func neverTouched(t Target) error {
	return fmt.Errorf("%w: Sluice never touches a %s", ErrUnsupported, t.Kind)
}

// unknown makes a row for a kind that the table does not have, from what its
// definition says: a boolean spec.suspend, else the number that its scale
// subresource means. Both are places in the object itself.
func (s *Stopper) unknown(ctx context.Context, mapping *meta.RESTMapping) (kinds.Kind, error) {
	row := kinds.Kind{GroupKind: mapping.GroupVersionKind.GroupKind(), Resource: mapping.Resource.Resource}
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(definitionKind)
	err := s.Client.Get(ctx, client.ObjectKey{Name: mapping.Resource.GroupResource().String()}, definition)
	if apierrors.IsNotFound(err) {
		return row, fmt.Errorf("%w: %s is a kind without a definition, and is not known", ErrUnsupported, mapping.Resource.GroupResource())
	}
	if err != nil {
		return row, fmt.Errorf("reading the definition of %s: %w", mapping.Resource.GroupResource(), err)
	}
	version := servedVersion(definition, mapping.GroupVersionKind.Version)
	if kind, _, _ := unstructured.NestedString(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "suspend", "type"); kind == "boolean" {
		row.Verb = kinds.Verb{Form: kinds.FormField, Path: []string{"spec", "suspend"}, Stop: true, Start: false}
		return row, nil
	}
	if path, _, _ := unstructured.NestedString(version, "subresources", "scale", "specReplicasPath"); strings.HasPrefix(path, ".spec.") {
		row.Verb = kinds.Verb{Form: kinds.FormReplicas, Path: strings.Split(path[1:], ".")}
		if count, _, _ := unstructured.NestedString(version, "subresources", "scale", "statusReplicasPath"); strings.HasPrefix(count, ".status.") {
			row.Busy = strings.Split(count[1:], ".")
		}
		return row, nil
	}
	if s.DeleteUnknown {
		row.Verb = kinds.Verb{Form: kinds.FormDelete, Final: true}
		return row, nil
	}
	return row, fmt.Errorf("%w: %s has neither a boolean spec.suspend nor a scale subresource, and deleting it is not allowed", ErrUnsupported, mapping.Resource.GroupResource())
}

// servedVersion is that version's part of a definition.
func servedVersion(definition *unstructured.Unstructured, name string) map[string]any {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, element := range versions {
		if version, ok := element.(map[string]any); ok && version["name"] == name {
			return version
		}
	}
	return nil
}
