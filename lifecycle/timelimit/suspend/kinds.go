// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/workloadkind"
)

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

func unsupportedKindError(t Target) error {
	return fmt.Errorf("%w: Sluice never touches a %s", ErrUnsupported, t.Kind)
}

// resolveUnknownKind makes a row for a kind that the table does not have, from what its
// definition says: a boolean spec.suspend, else the number that its scale
// subresource means. Both are places in the object itself.
func (s *Stopper) resolveUnknownKind(ctx context.Context, mapping *meta.RESTMapping) (workloadkind.Kind, error) {
	row := workloadkind.Kind{GroupKind: mapping.GroupVersionKind.GroupKind(), Resource: mapping.Resource.Resource}
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(crdKind)
	err := s.Client.Get(ctx, client.ObjectKey{Name: mapping.Resource.GroupResource().String()}, definition)
	if apierrors.IsNotFound(err) {
		return row, fmt.Errorf("%w: %s is a kind without a definition, and is not known", ErrUnsupported, mapping.Resource.GroupResource())
	}
	if err != nil {
		return row, fmt.Errorf("reading the definition of %s: %w", mapping.Resource.GroupResource(), err)
	}
	version := servedVersion(definition, mapping.GroupVersionKind.Version)
	if kind, _, _ := unstructured.NestedString(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "suspend", "type"); kind == "boolean" {
		row.StopAction = workloadkind.StopAction{Method: workloadkind.StopByField, Path: []string{"spec", "suspend"}, StopValue: true, StartValue: false}
		return row, nil
	}
	if path, _, _ := unstructured.NestedString(version, "subresources", "scale", "specReplicasPath"); strings.HasPrefix(path, ".spec.") {
		row.StopAction = workloadkind.StopAction{Method: workloadkind.StopByScaling, Path: strings.Split(path[1:], ".")}
		if count, _, _ := unstructured.NestedString(version, "subresources", "scale", "statusReplicasPath"); strings.HasPrefix(count, ".status.") {
			row.ActivePodsPath = strings.Split(count[1:], ".")
		}
		return row, nil
	}
	if s.DeleteUnknownKinds {
		row.StopAction = workloadkind.StopAction{Method: workloadkind.StopByDeletion, Irreversible: true}
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

// PolicyRules are what a [Stopper] needs, one rule for each group of the API: to read
// and patch each kind that it can stop, to find and delete pods and say so in
// their status, and to look up what a kind that it does not know can do. For kinds of
// that sort the right to patch them is the administrator's to give.
func PolicyRules() []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{crdKind.Group}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get"}},
	}
	patched := map[string][]string{}
	var groups []string
	for _, kind := range workloadkind.All() {
		if !isStoppedByPatch(kind) {
			continue
		}
		if _, seen := patched[kind.Group]; !seen {
			groups = append(groups, kind.Group)
		}
		patched[kind.Group] = append(patched[kind.Group], kind.Resource)
	}
	slices.SortFunc(groups, strings.Compare)
	for _, group := range groups {
		slices.Sort(patched[group])
		verbs := []string{"get", "patch"}
		if group == workloadkind.GroupKueue {
			verbs = []string{"get", "list", "patch"} // found by what they hold
		}
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: patched[group], Verbs: verbs})
	}
	return rules
}

func isStoppedByPatch(kind workloadkind.Kind) bool {
	return slices.Contains([]workloadkind.StopMethod{workloadkind.StopByField, workloadkind.StopByAnnotation, workloadkind.StopByScaling}, kind.StopAction.Method)
}
