// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/policies/engine"
)

var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// definition looks for a custom resource definition. The API server's discovery
// would be remembered after the definition is gone.
func (l *Look) definition(ctx context.Context, r *engine.Requirement) (*Missing, error) {
	seen, err := l.at(ctx, object{kind: definitionKind, name: r.CRD})
	if err != nil {
		return nil, err
	}
	switch {
	case seen.barred != "":
		return fault(r, seen.barred, seen.fix), nil
	case seen.content == nil && r.Optional:
		return nil, nil
	case seen.content == nil:
		return fault(r, "the custom resource definition "+r.CRD+" is not there", r.Fix), nil
	}
	if wrong := notServed(seen.content, r.Version); wrong != "" {
		return fault(r, "the custom resource definition "+r.CRD+" "+wrong, r.Fix), nil
	}
	return nil, nil
}

// notServed says why a definition does not serve a version, or any; nothing where
// it does.
func notServed(definition map[string]any, version string) string {
	conditions, _, _ := unstructured.NestedSlice(definition, "status", "conditions")
	for _, element := range conditions {
		condition, _ := element.(map[string]any)
		if condition["type"] == "Established" && condition["status"] != "True" {
			return short(fmt.Sprintf("is not established: %v", condition["message"]))
		}
	}
	var served []string
	versions, _, _ := unstructured.NestedSlice(definition, "spec", "versions")
	for _, element := range versions {
		one, _ := element.(map[string]any)
		if name, _ := one["name"].(string); one["served"] == true {
			served = append(served, name)
		}
	}
	switch {
	case version == "" && len(served) > 0, slices.Contains(served, version):
		return ""
	case len(served) == 0:
		return "serves no version"
	}
	return fmt.Sprintf("does not serve %s, but %s", version, short(strings.Join(served, ", ")))
}
