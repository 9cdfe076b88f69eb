// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/store"
)

// Outcome is the outcome of one test: of a case, or of a rule in a file of unit tests.
type Outcome struct {
	// File and Name identify the test.
	File, Name string
	// Failures are why it failed; none if it passed.
	Failures []Failure
	// Skipped: the unit test is named todo_test_.
	Skipped bool
	// Duration is the machine time it took.
	Duration time.Duration
}

// Passed reports whether the test ran and passed.
func (o *Outcome) Passed() bool { return len(o.Failures) == 0 && !o.Skipped }

// Sources returns the built-in policies and those of the folder, which replace those of the cluster with the same names. A
// policy in DryRun counts as Deny, so that a test shows what it will do.
func (f *Folder) Sources(inCluster []v1alpha1.Policy) []engine.Source {
	objects := slices.DeleteFunc(slices.Clone(inCluster), func(p v1alpha1.Policy) bool { return f.Has(p.Name) })
	for i := range f.Policies {
		policy := f.Policies[i]
		if policy.Spec.Enforcement == v1alpha1.EnforcementDryRun {
			policy.Spec.Enforcement = v1alpha1.EnforcementDeny
		}
		objects = append(objects, policy)
	}
	return store.Sources(policies.BuiltIn(), objects)
}

// Libraries returns the libraries of the folder. Other policies of the folder can import them.
func (f *Folder) Libraries() []engine.Source {
	var libraries []engine.Source
	for i := range f.Policies {
		if source := engine.FromPolicy(&f.Policies[i]); source.IsLibrary() {
			libraries = append(libraries, source)
		}
	}
	return libraries
}

// Checker checks a policy as the webhook does; see [check.Process.Check].
type Checker func(context.Context, engine.Source, check.Environment) (check.Result, error)

// CheckPolicies returns a failed outcome for each policy that the webhook would refuse beside the folder's libraries, with its
// problems.
func (f *Folder) CheckPolicies(ctx context.Context, checker Checker) ([]Outcome, error) {
	var outcomes []Outcome
	environment := check.Environment{Policies: f.Libraries()}
	for i := range f.Policies {
		policy := &f.Policies[i]
		start := policytime.MachineNow()
		result, err := checker(ctx, engine.FromPolicy(policy), environment)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", policy.Name, err)
		}
		outcome := Outcome{File: f.files[policy.Name], Name: "policy " + policy.Name, Duration: policytime.MachineNow().Sub(start)}
		for _, problem := range result.Problems {
			message := problem.Message
			if problem.Line > 0 && problem.Library == "" {
				message = f.RegoPlace(policy.Name, problem.Line, problem.Column).String() + ": " + message
			}
			outcome.Failures = append(outcome.Failures, Failure{Message: message})
		}
		if len(outcome.Failures) > 0 {
			outcomes = append(outcomes, outcome)
		}
	}
	return outcomes, nil
}

// RunCases evaluates the cases with the folder's policies and the built-in ones. An error is of the policies: no case was
// evaluated.
func (f *Folder) RunCases(ctx context.Context) ([]Outcome, error) {
	data, err := f.Data()
	if err != nil {
		return nil, err
	}
	clusters := caseClusters{sources: f.Sources(nil), data: data, byParameters: make(map[string]*Cluster)}
	if _, err := clusters.get(nil); err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, 0, len(f.Cases))
	for i := range f.Cases {
		c := &f.Cases[i]
		start := policytime.MachineNow()
		failures, err := f.runCase(ctx, &clusters, c)
		if err != nil {
			failures = []Failure{{Message: err.Error()}}
		}
		outcomes = append(outcomes, Outcome{File: c.File, Name: c.Name, Failures: failures, Duration: policytime.MachineNow().Sub(start)})
	}
	return outcomes, nil
}

func (f *Folder) runCase(ctx context.Context, clusters *caseClusters, c *Case) ([]Failure, error) {
	cluster, err := clusters.get(c)
	if err != nil {
		return nil, err
	}
	tenant, namespace, err := f.tenant(c.Project, c.now, &c.Namespace)
	if err != nil {
		return nil, err
	}
	decision, err := cluster.Decide(ctx, Request{
		Object: c.Object, Tenant: tenant, Namespace: namespace, User: c.User, Groups: c.Groups, Now: c.now,
	})
	if err != nil {
		return nil, err
	}
	return c.Expect.compare(decision), nil
}

// withParameters returns a policy with other parameters; a built-in one as if its mirror had them.
func withParameters(source engine.Source, parameters []byte) (engine.Source, error) {
	if !source.BuiltIn {
		source.Parameters = parameters
		return source, nil
	}
	if faults := policies.ValidateParameters(source.Name, parameters); len(faults) > 0 {
		return source, fmt.Errorf("parameters of %s: %s", source.Name, strings.Join(faults, "; "))
	}
	mirror := v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{
		Name: source.Name, Labels: map[string]string{v1alpha1.LabelBuiltIn: "true"},
	}}
	mirror.Spec.Parameters = &apiextensionsv1.JSON{Raw: parameters}
	return store.Sources([]engine.Source{source}, []v1alpha1.Policy{mirror})[0], nil
}

// caseClusters compiles the policies once for each set of parameters.
type caseClusters struct {
	sources      []engine.Source
	data         *engine.Data
	byParameters map[string]*Cluster
}

// get returns the cluster of a case; of none, that with the parameters of the folder.
func (c *caseClusters) get(of *Case) (*Cluster, error) {
	var key strings.Builder
	sources := c.sources
	if of != nil && len(of.Parameters) > 0 {
		sources = slices.Clone(c.sources)
		for _, name := range sortedKeys(of.Parameters) {
			at := slices.IndexFunc(sources, func(s engine.Source) bool { return s.Name == name })
			if at < 0 {
				return nil, fmt.Errorf("parameters: there is no policy %q", name)
			}
			var err error
			if sources[at], err = withParameters(sources[at], of.Parameters[name].Raw); err != nil {
				return nil, err
			}
			fmt.Fprintf(&key, "%q %s\n", name, of.Parameters[name].Raw)
		}
	}
	if known, ok := c.byParameters[key.String()]; ok {
		return known, nil
	}
	cluster, err := NewCluster(sources)
	if err != nil {
		return nil, err
	}
	cluster.UseData(c.data)
	c.byParameters[key.String()] = cluster
	return cluster, nil
}
