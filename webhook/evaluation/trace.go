// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"maps"
	"slices"
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/decisionlog"
)

// Trace collects how policies decide on one admission request, for its record. A nil Trace collects nothing. It is not safe for
// concurrent use.
type Trace struct {
	// Now is input.now of all evaluations of the request; if it is zero, the first one sets it.
	Now time.Time
	// Tenant is the project, and Policies the digest of the policies; zero if none were considered.
	Tenant   *decision.Tenant
	Policies string
	// set has the policies and their data; nil if none were considered.
	set *engine.Set
	// Decided is what the policies did, and Cached reports that they did it for an equal object.
	Decided Decided
	Cached  bool
	// Observe receives each result with the objects, if it is set.
	Observe func(*decision.Result)
}

// Decided is what policies did, without the object.
type Decided struct {
	// Evaluations are those of the policies, and Changed the paths that each changed.
	Evaluations []decisionlog.Evaluation
	Changed     map[string][]string
}

// Size estimates the memory, in bytes.
func (d *Decided) Size() int {
	size := 96 * len(d.Evaluations)
	for _, paths := range d.Changed {
		for _, path := range paths {
			size += 16 + len(path)
		}
	}
	return size
}

// traceKey is the key of a context's Trace.
type traceKey struct{}

// WithTrace returns a context in which policies' decisions are collected.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceOf returns the Trace of a context; nil if it has none.
func TraceOf(ctx context.Context) *Trace {
	t, _ := ctx.Value(traceKey{}).(*Trace)
	return t
}

// Restart forgets what policies did: another set of policies decides.
func (t *Trace) Restart(tenant *decision.Tenant, set *engine.Set) {
	if t != nil {
		t.Decided, t.Cached = Decided{}, false
		t.consider(tenant, set)
	}
}

// UseCached sets what policies did for an equal object, and the time of the request.
func (t *Trace) UseCached(decided Decided, clock policytime.Clock) {
	if t != nil {
		t.Decided, t.Cached = decided, true
		t.now(clock)
	}
}

// IsObserved reports whether each result is observed. No response comes from the cache then.
func (t *Trace) IsObserved() bool { return t != nil && t.Observe != nil }

// Taken returns what the policies did.
func (t *Trace) Taken() Decided {
	if t == nil {
		return Decided{}
	}
	return t.Decided
}

// consider sets the project, and the policies if they are known.
func (t *Trace) consider(tenant *decision.Tenant, set *engine.Set) {
	if t == nil {
		return
	}
	t.Tenant = tenant
	if set != nil {
		t.Policies, t.set = set.Digest(), set
	}
}

// now returns the time of the request.
func (t *Trace) now(clock policytime.Clock) time.Time {
	if t == nil {
		return clock.Now()
	}
	if t.Now.IsZero() {
		t.Now = clock.Now()
	}
	return t.Now
}

// add adds the result of the object or of a template.
func (t *Trace) add(template string, result *decision.Result) {
	if t == nil {
		return
	}
	for _, e := range result.Evaluations {
		t.Decided.Evaluations = append(t.Decided.Evaluations, decisionlog.Evaluation{
			Policy: e.Policy, Result: string(e.Result), Microseconds: e.Duration.Microseconds(), Cached: e.Cached, Template: template,
		})
	}
	if t.Decided.Changed == nil && len(result.Merged.ChangedPaths) > 0 {
		t.Decided.Changed = make(map[string][]string, len(result.Merged.ChangedPaths))
	}
	for policy, paths := range result.Merged.ChangedPaths {
		if template != "" {
			paths = slices.Clone(paths)
			for i := range paths {
				paths[i] = template + "." + paths[i]
			}
		}
		t.Decided.Changed[policy] = slices.Concat(t.Decided.Changed[policy], paths)
	}
	if t.Observe != nil {
		t.Observe(result)
	}
}

// complete sets what a record has of the policies.
func (t *Trace) complete(r *decisionlog.Record) {
	r.PolicyTime, r.Policies, r.Cached = t.Now, t.Policies, t.Cached
	r.Evaluations, r.Changed = t.Decided.Evaluations, maps.Clone(t.Decided.Changed)
	if t.Tenant != nil {
		r.Project, r.Department = t.Tenant.Project, t.Tenant.Department
	}
	if !r.Allowed {
		r.Changed = nil
	}
}
