// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
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

// RunCases evaluates the cases with the folder's policies and the built-in ones. An error is of the policies: no case was
// evaluated.
func (f *Folder) RunCases(ctx context.Context) ([]Outcome, error) {
	clusters := caseClusters{sources: f.Sources(nil), byParameters: make(map[string]*Cluster)}
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
	tenant, namespace, err := f.Tenant(c.Project, c.now)
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

// caseClusters compiles the policies once for each set of parameters.
type caseClusters struct {
	sources      []engine.Source
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
			sources[at].Parameters = of.Parameters[name].Raw
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
	c.byParameters[key.String()] = cluster
	return cluster, nil
}
