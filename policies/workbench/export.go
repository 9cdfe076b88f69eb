// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
)

// Export returns the files of a policy, by name: the object without what the cluster adds, and its Rego. [Load] reads them.
func Export(policy *v1alpha1.Policy) (map[string]string, error) {
	spec, err := specOf(policy)
	if err != nil {
		return nil, err
	}
	delete(spec, "rego")
	metadata := map[string]any{"name": policy.Name}
	if len(policy.Labels) > 0 {
		metadata["labels"] = policy.Labels
	}
	annotations := maps.Clone(policy.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	object := map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Policy", "metadata": metadata}
	if len(spec) > 0 {
		object["spec"] = spec
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode policy %s: %w", policy.Name, err)
	}
	// A file *.case.yaml would be read as cases.
	ending := ".yaml"
	if strings.HasSuffix(policy.Name+ending, caseSuffix) {
		ending = ".yml"
	}
	return map[string]string{policy.Name + ending: string(text), policy.Name + ".rego": policy.Spec.Rego}, nil
}

// specOf returns the spec of a policy as JSON has it, with its default of enforcement.
func specOf(policy *v1alpha1.Policy) (map[string]any, error) {
	completed := policy.Spec.DeepCopy()
	if completed.Enforcement == "" {
		completed.Enforcement = v1alpha1.EnforcementDeny
	}
	text, err := json.Marshal(completed)
	if err != nil {
		return nil, fmt.Errorf("encode policy %s: %w", policy.Name, err)
	}
	var spec map[string]any
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, fmt.Errorf("encode policy %s: %w", policy.Name, err)
	}
	return spec, nil
}
