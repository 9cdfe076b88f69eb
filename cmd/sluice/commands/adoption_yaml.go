// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
)

// yaml returns the project as YAML, with comments about each figure and what the adoption changes.
func (a *adoption) yaml() string {
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	name, spec := a.project.Name, &a.project.Spec
	line("---")
	line("# Namespace %s has %s.", a.namespace.Name, countOf(a.pods, "pod"))
	for _, problem := range a.problems {
		line("# PROBLEM: %s", oneLine(problem))
	}
	for _, warning := range a.warnings {
		line("# Note: %s", oneLine(warning))
	}
	line("#")
	line("# To hand the namespace over, before you apply this project:")
	line("#   kubectl annotate namespace %s %s=%s", a.namespace.Name, v1alpha1.AnnotationAdoptBy, name)
	line("# To take that back, as long as the project does not exist:")
	line("#   kubectl annotate namespace %s %s-", a.namespace.Name, v1alpha1.AnnotationAdoptBy)
	line("apiVersion: %s", a.project.APIVersion)
	line("kind: %s", a.project.Kind)
	line("metadata:")
	line("  name: %s", scalar(name))
	line("spec:")
	line("  department: %s", scalar(spec.Department))
	line("  namespace: %s", scalar(spec.Namespace))
	line("  owners:")
	for _, owner := range spec.Owners {
		line("    - name: %s", scalar(string(owner.Name)))
		line("      email: %s", scalar(string(owner.Email)))
		if owner.User != "" {
			line("      user: %s", scalar(owner.User))
		}
	}
	if len(a.uses) > 0 {
		line("  nodePools:")
	}
	for i, use := range a.uses {
		quota := spec.NodePools[i].GPU
		line("    - name: %s", scalar(use.pool))
		line("      gpu:")
		line("        # running: %s (%s), rounded up", use.running, orNone(describePods(use.runningPods)))
		line("        guaranteed: %s", scalar(quota.Guaranteed.String()))
		line("        # running and pending: %s (pending: %s), rounded up", use.running+use.pending, orNone(describePods(use.pendingPods)))
		line("        limit: %s", scalar(quota.Limit.String()))
	}
	if spec.Resources.CPU != nil || spec.Resources.Memory != nil {
		line("  resources: # the requests of all pods, rounded up: department %s limits them", a.project.Spec.Department)
		if spec.Resources.CPU != nil {
			line("    cpu: %s", scalar(spec.Resources.CPU.String()))
		}
		if spec.Resources.Memory != nil {
			line("    memory: %s", scalar(spec.Resources.Memory.String()))
		}
	}
	return text.String()
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// scalar returns a text as a YAML value in one line.
func scalar(text string) string {
	raw, err := yaml.Marshal(text)
	if err != nil {
		panic(err) // a string always marshals
	}
	value := strings.TrimSuffix(string(raw), "\n")
	if strings.Contains(value, "\n") {
		return fmt.Sprintf("%q", text)
	}
	return value
}
