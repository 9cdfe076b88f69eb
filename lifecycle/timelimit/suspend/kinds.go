// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend

import (
	"context"
	"errors"
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
	return fmt.Errorf("%w: Sluice does not stop objects of kind %s", ErrUnsupported, t.Kind)
}

// resolveUnknownKind derives the stop action of a kind that package workloadkind does not
// know from its CustomResourceDefinition: a boolean spec.suspend, else the replicas field of
// the scale subresource.
func (s *Stopper) resolveUnknownKind(ctx context.Context, mapping *meta.RESTMapping) (workloadkind.Kind, error) {
	kind := workloadkind.Kind{GroupKind: mapping.GroupVersionKind.GroupKind(), Resource: mapping.Resource.Resource}
	resource := mapping.Resource.GroupResource()
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(crdKind)
	err := s.Client.Get(ctx, client.ObjectKey{Name: resource.String()}, definition)
	if apierrors.IsNotFound(err) {
		return kind, fmt.Errorf("%w: Sluice does not know %s, and it has no CustomResourceDefinition", ErrUnsupported, resource)
	}
	if err != nil {
		return kind, fmt.Errorf("get the CustomResourceDefinition of %s: %w", resource, err)
	}
	version := servedVersion(definition, mapping.GroupVersionKind.Version)
	suspendType, _, _ := unstructured.NestedString(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "suspend", "type")
	replicasPath, _, _ := unstructured.NestedString(version, "subresources", "scale", "specReplicasPath")
	switch {
	case suspendType == "boolean":
		kind.StopAction = workloadkind.StopAction{
			Method: workloadkind.StopByField, Path: []string{"spec", "suspend"}, StopValue: true, StartValue: false,
		}
	case strings.HasPrefix(replicasPath, ".spec."):
		kind.StopAction = workloadkind.StopAction{Method: workloadkind.StopByScaling, Path: strings.Split(replicasPath[1:], ".")}
		countPath, _, _ := unstructured.NestedString(version, "subresources", "scale", "statusReplicasPath")
		if strings.HasPrefix(countPath, ".status.") {
			kind.ActivePodsPath = strings.Split(countPath[1:], ".")
		}
	case s.DeleteUnknownKinds:
		kind.StopAction = workloadkind.StopAction{Method: workloadkind.StopByDeletion, Irreversible: true}
	default:
		return kind, fmt.Errorf("%w: %s has neither a boolean spec.suspend nor a scale subresource, and stopping.deleteUnknownKinds is false",
			ErrUnsupported, resource)
	}
	return kind, nil
}

// CanStop reports whether objects of a kind can be stopped that package workloadkind does not know.
func (s *Stopper) CanStop(ctx context.Context, mapping *meta.RESTMapping) (bool, error) {
	_, err := s.resolveUnknownKind(ctx, mapping)
	if errors.Is(err, ErrUnsupported) {
		return false, nil
	}
	return err == nil, err
}

// servedVersion returns a version of a CustomResourceDefinition.
func servedVersion(definition *unstructured.Unstructured, name string) map[string]any {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, element := range versions {
		if version, ok := element.(map[string]any); ok && version["name"] == name {
			return version
		}
	}
	return nil
}

// PolicyRules returns the permissions that a [Stopper] needs, one rule for each API group:
// to find, read and patch objects of each known kind (a suspended project also stops workloads without
// pods, and its renewal releases them), to find and delete pods and patch their status, and to read
// the definitions of unknown kinds. An administrator must grant the permission to patch
// unknown kinds.
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
		if _, known := patched[kind.Group]; !known {
			groups = append(groups, kind.Group)
		}
		patched[kind.Group] = append(patched[kind.Group], kind.Resource)
	}
	slices.SortFunc(groups, strings.Compare)
	for _, group := range groups {
		slices.Sort(patched[group])
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: patched[group], Verbs: []string{"get", "list", "patch"}})
	}
	return rules
}

func isStoppedByPatch(kind workloadkind.Kind) bool {
	switch kind.StopAction.Method {
	case workloadkind.StopByField, workloadkind.StopByAnnotation, workloadkind.StopByScaling:
		return true
	}
	return false
}
