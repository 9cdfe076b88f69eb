// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// Measurement is the cost of one policy for one object, without the cache of results: the median of several rounds.
type Measurement struct {
	Policy string `json:"policy"`
	// Objects is how many of the objects the policy matches. The other fields are 0 if there are none.
	Objects     int   `json:"objects"`
	Nanoseconds int64 `json:"nanoseconds"`
	Allocations int64 `json:"allocations"`
	Bytes       int64 `json:"bytes"`
	// Before is the version of the baseline, measured in turns with this one; nil if the baseline does not have the policy.
	Before *Measurement `json:"before,omitempty"`
}

// Ratio returns the larger ratio of time and allocations to those of the baseline; 0 without one.
func (m *Measurement) Ratio() float64 {
	if m.Before == nil || m.Before.Nanoseconds == 0 {
		return 0
	}
	ratio := float64(m.Nanoseconds) / float64(m.Before.Nanoseconds)
	if m.Before.Allocations > 0 {
		ratio = max(ratio, float64(m.Allocations)/float64(m.Before.Allocations))
	}
	return ratio
}

// Baseline has the policies of an earlier measurement themselves, so that both versions are measured by the same machine.
type Baseline struct {
	Policies     []engine.Source `json:"policies"`
	Measurements []Measurement   `json:"measurements"`
}

// ReadBaseline reads a baseline as [Baseline.Write] writes it.
func ReadBaseline(input io.Reader) (*Baseline, error) {
	var b Baseline
	decoder := json.NewDecoder(input)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&b); err != nil {
		return nil, fmt.Errorf("decode the baseline: %w", err)
	}
	if len(b.Policies) == 0 {
		return nil, errors.New("the baseline has no policies")
	}
	return &b, nil
}

// NewBaseline returns the baseline of a folder's measurements.
func (f *Folder) NewBaseline(measurements []Measurement) *Baseline {
	b := &Baseline{Measurements: measurements}
	for i := range f.Policies {
		b.Policies = append(b.Policies, engine.FromPolicy(&f.Policies[i]))
	}
	return b
}

// libraries returns the libraries of the baseline.
func (b *Baseline) libraries() []engine.Source {
	return slices.DeleteFunc(slices.Clone(b.Policies), func(s engine.Source) bool { return !s.IsLibrary() })
}

// Write writes the baseline as JSON.
func (b *Baseline) Write(output io.Writer) error {
	encoder := json.NewEncoder(output)
	encoder.SetIndent("", "  ")
	return encoder.Encode(b)
}

// CaseObjects returns the objects of the folder's cases.
func (f *Folder) CaseObjects() []map[string]any {
	objects := make([]map[string]any, len(f.Cases))
	for i := range f.Cases {
		objects[i] = f.Cases[i].Object
	}
	return objects
}

// Bench measures each policy of the folder on the objects that it matches, with a number of rounds. A policy that the baseline
// has too is measured in turns with its version there: both meet the same noise of the machine. Libraries are measured with the
// policies that import them.
func (f *Folder) Bench(ctx context.Context, objects []map[string]any, rounds int, baseline *Baseline) ([]Measurement, error) {
	inputs, err := f.inputs(ctx, objects)
	if err != nil {
		return nil, err
	}
	data, err := f.Data()
	if err != nil {
		return nil, err
	}
	libraries := f.Libraries()
	measurements := make([]Measurement, 0, len(f.Policies))
	for i := range f.Policies {
		source := engine.FromPolicy(&f.Policies[i])
		if source.IsLibrary() {
			continue
		}
		versions := []version{{source, libraries}}
		if baseline != nil {
			at := slices.IndexFunc(baseline.Policies, func(s engine.Source) bool { return s.Name == source.Name && !s.IsLibrary() })
			if at >= 0 {
				versions = append(versions, version{baseline.Policies[at], baseline.libraries()})
			}
		}
		measured, err := measure(ctx, versions, data, inputs, rounds)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", source.Name, err)
		}
		if len(measured) > 1 {
			measured[0].Before = &measured[1]
		}
		measurements = append(measurements, measured[0])
	}
	slices.SortFunc(measurements, func(a, b Measurement) int { return cmp.Compare(a.Policy, b.Policy) })
	return measurements, nil
}

// inputs returns what policies read of objects and their templates, in the example project.
func (f *Folder) inputs(ctx context.Context, objects []map[string]any) ([]engine.Input, error) {
	cluster, err := NewCluster(f.Sources(nil))
	if err != nil {
		return nil, err
	}
	data, err := f.Data()
	if err != nil {
		return nil, err
	}
	cluster.UseData(data)
	var inputs []engine.Input
	for _, object := range objects {
		request, err := f.ExampleRequest(object, v1alpha1.PolicyMatch{})
		if err != nil {
			return nil, err
		}
		decision, err := cluster.Decide(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", object["kind"], err)
		}
		for i := range decision.Results {
			if in := decision.Results[i].Input; in != nil {
				inputs = append(inputs, *in)
			}
		}
	}
	return inputs, nil
}

// version is a version of a policy, with the libraries that it can import.
type version struct {
	source    engine.Source
	libraries []engine.Source
}

// contender is a version of a policy with the figures of its rounds.
type contender struct {
	set                            *engine.Set
	inputs                         []engine.Input
	nanoseconds, allocations, size []int64
}

// measure measures versions of a policy in turns. The match selects by kind only: projects and departments do not count.
func measure(ctx context.Context, versions []version, data *engine.Data, inputs []engine.Input, rounds int) ([]Measurement, error) {
	contenders := make([]*contender, len(versions))
	for i := range versions {
		source := versions[i].source
		source.Enforcement, source.Match.Projects, source.Match.Departments = v1alpha1.EnforcementDeny, nil, nil
		cluster, err := NewClusterWith(append(slices.Clone(versions[i].libraries), source), engine.Options{Limits: evaluationLimits, CacheEntries: -1})
		if err != nil {
			return nil, err
		}
		cluster.UseData(data)
		contenders[i] = &contender{set: cluster.set}
		for _, in := range inputs {
			outcome, err := cluster.set.Evaluate(ctx, in) // the first evaluation also fills OPA's caches
			if err != nil {
				return nil, err
			}
			if len(outcome.Evaluations) > 0 {
				contenders[i].inputs = append(contenders[i].inputs, in)
			}
		}
	}
	for round := range rounds {
		for i := range contenders {
			// The first one changes, so that none always follows the other.
			if err := contenders[(i+round)%len(contenders)].run(ctx); err != nil {
				return nil, err
			}
		}
	}
	measurements := make([]Measurement, len(contenders))
	for i, c := range contenders {
		measurements[i] = Measurement{
			Policy: versions[i].source.Name, Objects: len(c.inputs),
			Nanoseconds: median(c.nanoseconds), Allocations: median(c.allocations), Bytes: median(c.size),
		}
	}
	return measurements, nil
}

// run evaluates all objects once, and keeps the figures for one object.
func (c *contender) run(ctx context.Context) error {
	count := int64(len(c.inputs))
	if count == 0 {
		return nil
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := policytime.MachineNow()
	for i := range c.inputs {
		if _, err := c.set.Evaluate(ctx, c.inputs[i]); err != nil {
			return err
		}
	}
	elapsed := policytime.MachineNow().Sub(start)
	runtime.ReadMemStats(&after)
	c.nanoseconds = append(c.nanoseconds, int64(elapsed/time.Nanosecond)/count)
	c.allocations = append(c.allocations, int64(after.Mallocs-before.Mallocs)/count)
	c.size = append(c.size, int64(after.TotalAlloc-before.TotalAlloc)/count)
	return nil
}

// median returns the middle value, the lower one of two; 0 of none.
func median(values []int64) int64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(values))[(len(values)-1)/2]
}
