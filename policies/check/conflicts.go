// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/schema"
)

// Environment is where a policy will be evaluated.
type Environment struct {
	// Policies are those in force, the built-in ones included.
	Policies []engine.Source `json:"policies,omitempty"`
	// Tenants are projects that the policy matches. The policy is evaluated in example projects
	// too.
	Tenants []Tenant `json:"tenants,omitempty"`
}

// maxConflicts limits the warnings about conflicts.
const maxConflicts = 5

// exampleTime is the time of the evaluations.
var exampleTime = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// Conflicts returns a warning for each path at which a policy and another one want different
// values, on some example object. A policy in DryRun is evaluated as if it were in force.
func Conflicts(ctx context.Context, source engine.Source, environment Environment) (warnings []engine.Problem, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			warnings, err = nil, fmt.Errorf("evaluate example objects: %v", cause)
		}
	}()
	set, err := compileTogether(source, environment.Policies)
	if set == nil || err != nil {
		return nil, err
	}
	samples, err := sampleTenants(source.Match)
	if err != nil {
		return nil, err
	}
	all, err := examples()
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool)
	for n, tenant := range append(slices.Clone(environment.Tenants), samples...) {
		place := "an example project"
		if n < len(environment.Tenants) {
			place = "project " + tenant.Project
		}
		for i := range all {
			conflicts, err := findConflicts(ctx, set, &tenant, &all[i])
			if err != nil {
				return nil, err
			}
			for _, conflict := range conflicts {
				text, involved := describeConflict(conflict, source.Name)
				if !involved || known[text] {
					continue
				}
				known[text] = true
				warnings = append(warnings, engine.Problem{Policy: source.Name, Kind: engine.ConflictingValue, Message: fmt.Sprintf(
					"%s, for example on %s in %s; objects on which policies in force conflict are refused: "+
						"let one of the policies not match them, or use defaults instead of overrides", text, all[i].name, place,
				)})
				if len(warnings) == maxConflicts {
					return warnings, nil
				}
			}
		}
	}
	return warnings, nil
}

// compileTogether returns the set of a policy and those with which it can conflict; nil if there
// are none.
func compileTogether(source engine.Source, others []engine.Source) (*engine.Set, error) {
	if !engine.ChangesObjects(source) {
		return nil, nil
	}
	source.Enforcement = v1alpha1.EnforcementDeny
	together := []engine.Source{source}
	for _, other := range relevantPolicies(source, others) {
		if engine.ChangesObjects(other) {
			together = append(together, other)
		}
	}
	if len(together) == 1 {
		return nil, nil
	}
	for _, other := range others {
		if other.IsLibrary() {
			together = append(together, other)
		}
	}
	options := engine.Options{Libraries: policies.Libraries(), Limits: engine.Limits{Request: time.Minute}} // bounded by the child's time
	set, reports, err := engine.Compile(together, options)
	readers := make(map[string]bool)
	for _, report := range reports {
		readers[report.Name] = !report.Reads.IsEmpty()
	}
	// Policies that read data fail without it, and a failed one shows no conflict.
	without := slices.DeleteFunc(slices.Clone(together), func(one engine.Source) bool { return readers[one.Name] })
	switch {
	case err != nil || len(without) == len(together):
		return set, err
	case readers[source.Name]:
		return nil, nil
	}
	set, _, err = engine.Compile(without, options)
	return set, err
}

// relevantPolicies returns the policies with which a policy can be evaluated together, and the libraries.
func relevantPolicies(source engine.Source, others []engine.Source) []engine.Source {
	return slices.DeleteFunc(slices.Clone(others), func(other engine.Source) bool {
		if other.IsLibrary() {
			return source.IsLibrary()
		}
		if source.IsLibrary() || other.Name == source.Name {
			return true
		}
		return other.Enforcement == v1alpha1.EnforcementDryRun || !matchesOverlap(source.Match, other.Match)
	})
}

// matchesOverlap reports whether two policies can match the same object, as far as their lists tell.
func matchesOverlap(a, b v1alpha1.PolicyMatch) bool {
	shareOne := func(x, y []string) bool {
		return len(x) == 0 || len(y) == 0 || slices.ContainsFunc(x, func(name string) bool { return slices.Contains(y, name) })
	}
	return shareOne(a.Projects, b.Projects) && shareOne(a.Departments, b.Departments) && shareOne(matchedKinds(a), matchedKinds(b))
}

// findConflicts returns the conflicts of all policies on an example object in a project.
func findConflicts(ctx context.Context, set *engine.Set, tenant *Tenant, one *example) ([]merge.Conflict, error) {
	in := engine.Input{Subject: one.subject, Now: exampleTime, Object: document.FromObject(one.object)}
	in.Subject.Project, in.Subject.Department = tenant.Project, tenant.Department
	in.Subject.Schedulers = engine.SchedulersOf(tenant.Schedulers...)
	var err error
	for name, field := range map[string]*document.Document{"project": &in.Project, "department": &in.Department, "nodePools": &in.NodePools} {
		if *field, err = document.Decode(tenant.Documents[name]); err != nil {
			return nil, fmt.Errorf("decode the %s of project %s: %w", name, tenant.Project, err)
		}
	}
	if in.Review, err = document.FromGo(map[string]any{
		"operation": "CREATE", "namespace": tenant.Project, "userInfo": map[string]any{"username": "sample"},
	}); err != nil {
		return nil, err
	}
	request := one.request
	if in.Workload, err = document.FromGo(request); err != nil {
		return nil, err
	}
	if request.Type == "" {
		if request.Type, err = set.WorkloadType(ctx, in); err != nil {
			return nil, err
		}
		if in.Workload, err = document.FromGo(request); err != nil {
			return nil, err
		}
	}
	outcome, err := set.Evaluate(ctx, in)
	if err != nil {
		return nil, err
	}
	var conflict *merge.ConflictError
	if _, err := merge.Apply(one.object, outcome.Changes, schema.ClusterDefaults{}); errors.As(err, &conflict) {
		return conflict.Conflicts, nil
	}
	return nil, nil
}

// describeConflict describes a conflict, and reports whether a policy is involved.
func describeConflict(conflict merge.Conflict, policy string) (text string, involved bool) {
	var values []string
	for _, value := range conflict.Desired {
		values = append(values, value.String())
		involved = involved || slices.Contains(value.Policies, policy)
	}
	return conflict.Path + ": " + strings.Join(values, ", "), involved
}
