// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/policytime"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/merge/schema"
	"sluice.dev/policies/replica"
)

// Base has the dependencies that the handlers of pods and workloads share.
type Base struct {
	// Evaluator evaluates the policies.
	Evaluator *Evaluator
	// Tenants resolves the project that owns a namespace.
	Tenants Tenants
}

// Tenants resolves the project that owns a namespace. [TenantResolver] does it.
type Tenants interface {
	// Resolve returns the tenant of a namespace; nil if no project owns it. The caller must not modify it.
	Resolve(ctx context.Context, namespace string) (*decision.Tenant, error)
	// ResolveForPod returns the tenant of a new pod, likewise.
	ResolveForPod(ctx context.Context, req *admission.Request) (*decision.Tenant, error)
}

// Evaluator evaluates the policies of an engine for admission requests.
type Evaluator struct {
	// Engine has the policies in force.
	Engine *engine.Engine
	// Clock is policy time, for input.now.
	Clock policytime.Clock
	// Cluster has the API server's defaults that differ between clusters.
	Cluster schema.ClusterDefaults
	// Slots limits the concurrent evaluations; nil means no limit.
	Slots *Slots
	// Timeout limits a request, with the wait for a slot and for processors; 0 means no limit of its own.
	Timeout time.Duration
	// DryRun evaluates the policies in DryRun, if it is set.
	DryRun *DryRunQueue
	// Counter counts the violations, if it is set.
	Counter *replica.Counter

	once      sync.Once
	decisions *decision.Evaluator
}

// Result is the outcome of a request.
type Result struct {
	decision.Result
	// Violations are what [Evaluator.Count] counts.
	Violations Violations
	// DenialPrefix is how the denial begins; empty unless it is for the pods of a workload.
	DenialPrefix string
}

// Mutate evaluates an object that can still change, under the policies in force if the request names none. After an error
// the object must not be admitted.
func (e *Evaluator) Mutate(ctx context.Context, request decision.Request) (Result, error) {
	return e.evaluate(ctx, request, "", func(ctx context.Context, request decision.Request) (decision.Result, error) {
		return e.evaluator().Mutate(ctx, request)
	})
}

// MutateTemplate evaluates a pod template as the pod that it will create in the namespace; see
// [decision.Evaluator.MutateTemplate].
func (e *Evaluator) MutateTemplate(
	ctx context.Context, t workloadkind.Template, namespace string, request decision.Request,
) (Result, error) {
	return e.evaluate(ctx, request, t.Path, func(ctx context.Context, request decision.Request) (decision.Result, error) {
		return e.evaluator().MutateTemplate(ctx, t, namespace, request)
	})
}

// evaluate evaluates an object, and its policies in DryRun after the answer.
func (e *Evaluator) evaluate(
	ctx context.Context, request decision.Request, template string, mutate func(context.Context, decision.Request) (decision.Result, error),
) (Result, error) {
	ctx, release, err := e.begin(ctx, &request)
	if err != nil {
		return Result{}, err
	}
	defer release()
	decided, err := mutate(ctx, request)
	TraceOf(ctx).add(template, &decided)
	result := Result{Result: decided}
	result.Violations.warned = newViolations(request.Policies, decided.Warned, decided.Original)
	if e.DryRun != nil && decided.Input != nil {
		var added bool
		result.Violations.dryRun, added = e.DryRun.add(e, request.Policies, decided.Input, decided.InputBytes)
		result.Transient = result.Transient || !added
	}
	result.Violations.denied = newViolations(request.Policies, result.Denials, decided.Original)
	return result, err
}

// Validate evaluates an object that can no longer change. It enforces the values that policies require, and
// ignores their defaults and appended elements.
func (e *Evaluator) Validate(ctx context.Context, request decision.Request) (Result, error) {
	ctx, release, err := e.begin(ctx, &request)
	if err != nil {
		return Result{}, err
	}
	defer release()
	decided, err := e.evaluator().Validate(ctx, request)
	TraceOf(ctx).add("", &decided)
	result := Result{Result: decided}
	result.Violations.denied = newViolations(request.Policies, result.Denials, decided.Original)
	return result, err
}

// begin waits for a slot. It completes the request, and returns its context and the function that ends it.
func (e *Evaluator) begin(ctx context.Context, request *decision.Request) (context.Context, func(), error) {
	end := func() {}
	TraceOf(ctx).consider(request.Tenant, request.Policies)
	if e.Timeout > 0 {
		ctx, end = context.WithTimeout(ctx, e.Timeout)
	}
	if e.Slots != nil {
		patient, giveUp := ctx, func() {}
		if e.Slots.isCrowdedBy(request.Tenant.Project) && isController(requester(request)) {
			patient, giveUp = context.WithTimeout(ctx, controllerPatience)
		}
		release, err := e.Slots.Acquire(patient, request.Tenant.Project)
		giveUp()
		if err != nil {
			end()
			return nil, nil, fmt.Errorf("wait for an evaluation slot: %w", err)
		}
		cancel := end
		end = func() { release(); cancel() }
	}
	if request.Policies == nil {
		var err error
		if request.Policies, err = e.Engine.Current(); err != nil {
			end()
			return nil, nil, err
		}
	}
	TraceOf(ctx).consider(request.Tenant, request.Policies)
	request.Now = TraceOf(ctx).now(e.Clock)
	return ctx, end, nil
}

// controllerPatience is how long a controller's request waits for a slot if its project causes the load, in machine time. A controller
// has few workers for all projects, and each waits for the answer.
const controllerPatience = 250 * time.Millisecond

// requester returns the user of a request.
func requester(request *decision.Request) string {
	return schema.AsString(schema.AsMap(request.Review.Object()["userInfo"])["username"])
}

func (e *Evaluator) evaluator() *decision.Evaluator {
	e.once.Do(func() { e.decisions = &decision.Evaluator{Cluster: e.Cluster} })
	return e.decisions
}
