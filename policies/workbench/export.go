// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// Export returns the files of a policy, by name: the object without what the cluster adds, and its Rego. [Load] reads them.
func Export(policy *v1alpha1.Policy) (map[string]string, error) {
	spec, err := specOf(policy)
	if err != nil {
		return nil, err
	}
	delete(spec, "rego")
	text, err := encodePolicy(policy, spec)
	if err != nil {
		return nil, err
	}
	// A file *.case.yaml would be read as cases.
	ending := ".yaml"
	if strings.HasSuffix(policy.Name+ending, caseSuffix) {
		ending = ".yml"
	}
	return map[string]string{policy.Name + ending: text, policy.Name + ".rego": policy.Spec.Rego}, nil
}

// Manifest returns the folder's policies as one text in YAML that kubectl can apply, each with its Rego, in the order in
// which the webhook accepts them.
func (f *Folder) Manifest() (string, error) {
	sorted := inApplyOrder(f.Policies)
	documents := make([]string, len(sorted))
	for i := range sorted {
		spec, err := specOf(&sorted[i])
		if err != nil {
			return "", err
		}
		if documents[i], err = encodePolicy(&sorted[i], spec); err != nil {
			return "", err
		}
	}
	return strings.Join(documents, "---\n"), nil
}

// inApplyOrder returns policies sorted by name, after the libraries, each of which follows those that it imports.
func inApplyOrder(policies []v1alpha1.Policy) []v1alpha1.Policy {
	var libraries, others []v1alpha1.Policy
	for i := range policies {
		if policies[i].Spec.Type == v1alpha1.PolicyTypeLibrary {
			libraries = append(libraries, policies[i])
		} else {
			others = append(others, policies[i])
		}
	}
	byName := func(a, b v1alpha1.Policy) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(libraries, byName)
	slices.SortFunc(others, byName)
	var sorted []v1alpha1.Policy
	var before []engine.Source
	for len(libraries) > 0 {
		// If each of them lacks another one, that is not in the folder, or they are a circle, which the webhook refuses.
		next := max(0, slices.IndexFunc(libraries, func(p v1alpha1.Policy) bool { return !engine.LacksLibrary(engine.FromPolicy(&p), before) }))
		sorted, before = append(sorted, libraries[next]), append(before, engine.FromPolicy(&libraries[next]))
		libraries = slices.Delete(libraries, next, next+1)
	}
	return append(sorted, others...)
}

// encodePolicy returns a policy in YAML, with a spec, and without what the cluster adds.
func encodePolicy(policy *v1alpha1.Policy, spec map[string]any) (string, error) {
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
		return "", fmt.Errorf("encode policy %s: %w", policy.Name, err)
	}
	return string(text), nil
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
