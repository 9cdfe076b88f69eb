// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/merge/schema"
	"sluice.dev/policies/store"
)

// ChangeKind is what applying a folder does to a policy of a cluster.
type ChangeKind string

// The kinds of changes.
const (
	Added     ChangeKind = "Added"
	Changed   ChangeKind = "Changed"
	Unchanged ChangeKind = "Unchanged"
	// OnlyInCluster: the folder does not have the policy, and applying it leaves the policy as it is.
	OnlyInCluster ChangeKind = "OnlyInCluster"
)

// PolicyChange is what applying a folder does to one policy.
type PolicyChange struct {
	Policy string     `json:"policy"`
	Change ChangeKind `json:"change"`
	// Diff is the difference of the spec and of the Rego, line by line.
	Diff string `json:"diff,omitempty"`
}

// CompareSets returns what applying the folder does to the policies of a cluster, sorted by name. Mirrors of built-in policies that the
// folder does not have are left out.
func (f *Folder) CompareSets(inCluster []v1alpha1.Policy) ([]PolicyChange, error) {
	var changes []PolicyChange
	for i := range f.Policies {
		after := &f.Policies[i]
		change := PolicyChange{Policy: after.Name, Change: Added}
		at := slices.IndexFunc(inCluster, func(p v1alpha1.Policy) bool { return p.Name == after.Name })
		if at >= 0 {
			diff, err := diffPolicies(&inCluster[at], after)
			if err != nil {
				return nil, err
			}
			if change.Change, change.Diff = Changed, diff; diff == "" {
				change.Change = Unchanged
			}
		}
		changes = append(changes, change)
	}
	for i := range inCluster {
		if name := inCluster[i].Name; !f.Has(name) && !IsMirror(&inCluster[i]) {
			changes = append(changes, PolicyChange{Policy: name, Change: OnlyInCluster})
		}
	}
	slices.SortFunc(changes, func(a, b PolicyChange) int { return cmp.Compare(a.Policy, b.Policy) })
	return changes, nil
}

// IsMirror reports whether a Policy object of a cluster mirrors a built-in policy.
func IsMirror(policy *v1alpha1.Policy) bool { return policy.Labels[v1alpha1.LabelBuiltIn] == "true" }

// diffPolicies returns the difference of two versions of a policy; empty if their specs are equal.
func diffPolicies(before, after *v1alpha1.Policy) (string, error) {
	var specs, regos [2]string
	for i, policy := range []*v1alpha1.Policy{before, after} {
		spec, err := specOf(policy)
		if err != nil {
			return "", err
		}
		delete(spec, "rego")
		text, err := yaml.Marshal(spec)
		if err != nil {
			return "", fmt.Errorf("encode policy %s: %w", policy.Name, err)
		}
		specs[i], regos[i] = string(text), policy.Spec.Rego
	}
	ofSpec, err := diffTexts(specs, after.Name+" spec")
	if err != nil {
		return "", err
	}
	ofRego, err := diffTexts(regos, after.Name+" spec.rego")
	return ofSpec + ofRego, err
}

func diffTexts(texts [2]string, name string) (string, error) {
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(texts[0]), B: difflib.SplitLines(texts[1]), FromFile: "cluster: " + name, ToFile: "folder: " + name, Context: 3,
	})
}

// Effect is how a changed set of policies decides another way on an object.
type Effect struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Project   string `json:"project"`
	// Denied and Warned are the new denials and warnings, and Allowed the denials that end.
	Denied  []string `json:"denied,omitempty"`
	Warned  []string `json:"warned,omitempty"`
	Allowed []string `json:"allowed,omitempty"`
	// Diff is how the resulting object differs.
	Diff string `json:"diff,omitempty"`
}

// SetComparison compares the decisions of the policies of a cluster with those after a folder is applied.
type SetComparison struct{ before, after *Cluster }

// NewSetComparison compiles both sets of policies. Policies in DryRun are not evaluated. An error in the cluster's policies is
// not one: the set then lacks them. One in the folder's policies is, and one that the folder causes, such as by a changed library:
// without these policies the comparison would show too little.
func (f *Folder) NewSetComparison(inCluster []v1alpha1.Policy) (*SetComparison, error) {
	before, err := NewCluster(store.Sources(policies.BuiltIn(), inCluster))
	if before == nil {
		return nil, err
	}
	known := policiesOf(err)
	applied := slices.DeleteFunc(slices.Clone(inCluster), func(p v1alpha1.Policy) bool { return f.Has(p.Name) })
	after, err := NewCluster(store.Sources(policies.BuiltIn(), append(applied, f.Policies...)))
	isNew := func(name string) bool { return f.Has(name) || !slices.Contains(known, name) }
	if after == nil || slices.ContainsFunc(policiesOf(err), isNew) {
		return nil, err
	}
	data, err := f.Data()
	if err != nil {
		return nil, err
	}
	before.UseData(data)
	after.UseData(data)
	return &SetComparison{before, after}, nil
}

// policiesOf returns the names of the policies that an error of [NewCluster] is about.
func policiesOf(err error) []string {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return nil
	}
	var names []string
	for _, fault := range joined.Unwrap() {
		var problem engine.Problem
		if errors.As(fault, &problem) {
			names = append(names, problem.Policy)
		}
	}
	return names
}

// Compare decides an object as if it were created now, with both sets. It returns nil if they decide the same.
func (c *SetComparison) Compare(ctx context.Context, request Request) (*Effect, error) {
	before, err := c.before.Decide(ctx, request)
	if err != nil {
		return nil, err
	}
	after, err := c.after.Decide(ctx, request)
	if err != nil {
		return nil, err
	}
	metadata := schema.AsMap(request.Object["metadata"])
	effect := &Effect{
		Kind: schema.AsString(request.Object["kind"]), Namespace: request.Namespace,
		Name: schema.AsString(metadata["name"]), Project: request.Tenant.Project,
	}
	effect.Denied = without(after.Denials(), before.Denials())
	effect.Allowed = without(before.Denials(), after.Denials())
	effect.Warned = without(after.Warnings(), before.Warnings())
	if len(before.Denials())+len(after.Denials()) == 0 && !schema.Equal(before.Effective, after.Effective) {
		var texts [2]string
		for i, object := range []map[string]any{before.Effective, after.Effective} {
			text, err := yaml.Marshal(object)
			if err != nil {
				return nil, fmt.Errorf("encode the object: %w", err)
			}
			texts[i] = string(text)
		}
		if effect.Diff, err = diffTexts(texts, effect.Kind+" "+effect.Name); err != nil {
			return nil, err
		}
	}
	if len(effect.Denied)+len(effect.Allowed)+len(effect.Warned) == 0 && effect.Diff == "" {
		return nil, nil
	}
	return effect, nil
}

// without returns the texts that others do not have.
func without(texts, others []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return slices.Contains(others, text) })
}
