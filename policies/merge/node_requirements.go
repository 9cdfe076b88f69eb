// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/policies/merge/schema"
)

// requirement is a node requirement with the policies that set it.
type requirement struct {
	policies []string
	json     map[string]any
	text     string // canonical JSON, which identifies it
}

// affinityPath leads from a pod to its required node selector terms.
var affinityPath = []string{"spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"}

// addRequirements adds the requirements of all policies to the plan.
func (b *planBuilder) addRequirements(all []requirement) {
	if len(all) == 0 {
		return
	}
	n := b.root
	for _, name := range slices.Concat(podPath(n.typ), affinityPath) {
		n = b.field(n, n.typ.Field(name))
	}
	n.requirements = all
	n.markPhase(appendPhase)
}

// collectRequirements adds a policy's requirements to the sorted list of all. Equal ones
// are combined.
func (b *planBuilder) collectRequirements(all []requirement, nodes []corev1.NodeSelectorRequirement) []requirement {
	for _, n := range nodes {
		if n.Key == "" || n.Operator == "" {
			b.addInvalidChanges(b.policy, "nodes", "a requirement needs a key and an operator, and is %s", formatValue(n))
			continue
		}
		made := requirement{policies: []string{b.policy}, json: requirementJSON(n)}
		made.text = canonicalJSON(made.json)
		at, found := slices.BinarySearchFunc(all, made, func(a, b requirement) int { return cmp.Compare(a.text, b.text) })
		if found {
			all[at].policies = addPolicy(all[at].policies, b.policy)
		} else {
			all = slices.Insert(all, at, made)
		}
	}
	return all
}

// requirementJSON sorts the values and removes duplicates: they are a set.
func requirementJSON(n corev1.NodeSelectorRequirement) map[string]any {
	made := map[string]any{"key": n.Key, "operator": string(n.Operator)}
	if len(n.Values) > 0 {
		var values []any
		for _, v := range slices.Compact(slices.Sorted(slices.Values(n.Values))) {
			values = append(values, v)
		}
		made["values"] = values
	}
	return made
}

// matches reports whether an expression of a term equals the requirement.
func (r requirement) matches(expression any) bool {
	e := schema.AsMap(expression)
	if schema.AsString(e["key"]) != r.json["key"] || schema.AsString(e["operator"]) != r.json["operator"] {
		return false
	}
	var values []string
	for _, v := range schema.AsList(e["values"]) {
		values = append(values, schema.AsString(v))
	}
	slices.Sort(values)
	return slices.EqualFunc(slices.Compact(values), schema.AsList(r.json["values"]), func(s string, v any) bool { return s == v })
}

// withRequirements adds each missing requirement to each term of a required node
// affinity, and creates a term if there is no affinity. Terms are ORed, so it adds none
// beside others. A term without expressions matches no node and stays empty. added are
// the policies whose requirements were missing.
func withRequirements(affinity any, requirements []requirement) (with any, added []string) {
	if affinity == nil {
		var expressions []any
		for _, r := range requirements {
			expressions = append(expressions, r.json)
			added = append(added, r.policies...)
		}
		return map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": expressions}}}, added
	}
	terms := slices.Clone(schema.AsList(schema.AsMap(affinity)["nodeSelectorTerms"]))
	for i, term := range terms {
		old := schema.AsMap(term)
		expressions := schema.AsList(old["matchExpressions"])
		if len(expressions) == 0 && len(schema.AsList(old["matchFields"])) == 0 {
			continue
		}
		expressions = slices.Clone(expressions)
		for _, r := range requirements {
			if !slices.ContainsFunc(expressions, r.matches) {
				expressions = append(expressions, r.json)
				added = append(added, r.policies...)
			}
		}
		narrowed := cloneMap(old)
		narrowed["matchExpressions"] = expressions
		terms[i] = narrowed
	}
	if len(added) == 0 {
		return affinity, nil
	}
	narrowed := cloneMap(schema.AsMap(affinity))
	narrowed["nodeSelectorTerms"] = terms
	return narrowed, added
}
