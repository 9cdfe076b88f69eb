// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/semaphore"

	"sluice.dev/api/policytime"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/schema"
)

// Evaluator evaluates the policies of an engine.
type Evaluator struct {
	// Engine has the policies in force.
	Engine *engine.Engine
	// Clock is policy time, for input.now.
	Clock policytime.Clock
	// Cluster has the API server's defaults that differ between clusters.
	Cluster schema.ClusterDefaults
	// WorkerSlots limits the concurrent evaluations; nil means no limit. With more evaluations than processors
	// each one becomes slower, until policies exceed their deadlines.
	WorkerSlots *semaphore.Weighted

	requestDocuments requestDocumentCache
}

// Result is the outcome of a request.
type Result struct {
	// Denials are all reasons to deny the object; empty if it is allowed.
	Denials []merge.Finding
	// Warnings are for the object's author.
	Warnings []merge.Finding
	// Original is the object as received, and Merged the object with the policies' changes. Merged shares its
	// unchanged parts with Original, and has no meaning if the object is denied.
	Original map[string]any
	Merged   merge.Result
	// DryRun is what the policies in DryRun would have done.
	DryRun engine.DryRunOutcome
	// PolicyFailed reports that a policy could not be evaluated: the result must not be cached.
	PolicyFailed bool
}

// Mutate evaluates an object that can still change. It denies an object that is too large before it evaluates any
// policy. After an error the object must not be admitted.
func (e *Evaluator) Mutate(ctx context.Context, request Request) (Result, error) {
	set, release, err := e.acquire(ctx, &request)
	if err != nil {
		return Result{}, err
	}
	defer release()
	object, err := request.decodeObject()
	if err != nil {
		return Result{}, err
	}
	if denials := denialsForSize(object.Object(), request.Tenant.SizeLimits); len(denials) > 0 {
		return Result{Denials: denials}, nil
	}
	result, changes, err := e.evaluate(ctx, set, &request, object)
	if err != nil || len(result.Denials) > 0 {
		return result, err
	}
	result.Original = object.Object()
	if result.Merged, err = merge.Apply(result.Original, changes, e.Cluster); err != nil {
		result.Denials = denialsForMergeError(err)
		return result, nil
	}
	for _, warning := range result.Merged.Warnings {
		result.Warnings = append(result.Warnings, merge.Finding{Message: warning.String()})
	}
	if len(result.Merged.ChangedPaths) == 0 {
		return result, nil
	}
	second, err := e.reevaluate(ctx, set, &request, result.Merged.Object)
	result.Denials, result.PolicyFailed = second.Denials, result.PolicyFailed || second.PolicyFailed
	return result, err
}

// reevaluate evaluates the changed object. Its denials name the policies that still request a change.
func (e *Evaluator) reevaluate(ctx context.Context, set *engine.Set, request *Request, object map[string]any) (Result, error) {
	result, changes, err := e.evaluate(ctx, set, request, document.FromObject(object))
	if err != nil || len(result.Denials) > 0 {
		return result, err
	}
	merged, err := merge.Apply(object, changes, e.Cluster)
	if err != nil {
		result.Denials = denialsForMergeError(err)
		return result, nil
	}
	result.Denials = denialsForChanges(merged, "requests further changes to the object that it changed: %s")
	return result, nil
}

// Validate evaluates an object that can no longer change. It enforces the values that policies require, and
// ignores their defaults and appended elements.
func (e *Evaluator) Validate(ctx context.Context, request Request) (Result, error) {
	set, release, err := e.acquire(ctx, &request)
	if err != nil {
		return Result{}, err
	}
	defer release()
	object, err := request.decodeObject()
	if err != nil {
		return Result{}, err
	}
	if denials := denialsForSize(object.Object(), request.Tenant.SizeLimits); len(denials) > 0 {
		return Result{Denials: denials}, nil
	}
	result, changes, err := e.evaluate(ctx, set, &request, object)
	if err != nil || len(result.Denials) > 0 {
		return result, err
	}
	required := slices.Clone(changes)
	for i := range required {
		required[i].Defaults, required[i].Append = nil, nil
	}
	if result.Merged, err = merge.Apply(object.Object(), required, e.Cluster); err != nil {
		result.Denials = denialsForMergeError(err)
		return result, nil
	}
	result.Denials = denialsForChanges(result.Merged, "another webhook reverted what this policy requires: %s")
	return result, nil
}

// acquire waits for a worker slot. It returns the policies for the whole request, and the function that
// releases the slot.
func (e *Evaluator) acquire(ctx context.Context, request *Request) (*engine.Set, func(), error) {
	release := func() {}
	if e.WorkerSlots != nil {
		if err := e.WorkerSlots.Acquire(ctx, 1); err != nil {
			return nil, nil, fmt.Errorf("wait for an evaluation slot: %w", err)
		}
		release = func() { e.WorkerSlots.Release(1) }
	}
	if request.Policies != nil {
		return request.Policies, release, nil
	}
	set, err := e.Engine.Current()
	if err != nil {
		release()
		return nil, nil, err
	}
	return set, release, nil
}

// evaluate evaluates all policies on one state of the object. It denies an invalid GPU request without
// evaluating any policy.
func (e *Evaluator) evaluate(
	ctx context.Context, set *engine.Set, request *Request, object document.Document,
) (Result, []merge.DesiredChanges, error) {
	requested, err := request.workloadRequest(object.Object())
	var invalid workload.InvalidRequest
	if errors.As(err, &invalid) {
		return Result{Denials: denialsForInvalidRequest(invalid)}, nil, nil
	}
	if err != nil {
		return Result{}, nil, err
	}
	documents := &request.Tenant.Documents
	in := engine.Input{
		Subject: request.Subject(),
		Review:  request.Review, Object: object,
		Project: documents.Project, Department: documents.Department, NodePools: documents.NodePools,
		Now:      e.Clock.Now().In(request.Tenant.TimeZone),
		Template: request.IsTemplate,
	}
	if err := e.setWorkload(ctx, set, &in, &requested); err != nil {
		return Result{}, nil, err
	}
	outcome, err := set.Evaluate(ctx, in)
	if err != nil {
		return Result{}, nil, err
	}
	result := Result{Denials: outcome.Denials, Warnings: outcome.Warnings, DryRun: outcome.DryRun, PolicyFailed: len(outcome.Failures) > 0}
	return result, outcome.Changes, nil
}

// setWorkload sets input.workload. If the author named no workload type, the policies determine it.
func (e *Evaluator) setWorkload(ctx context.Context, set *engine.Set, in *engine.Input, requested *workload.Request) (err error) {
	if in.Workload, err = e.requestDocuments.document(requested); err != nil || requested.Type != "" {
		return err
	}
	if requested.Type, err = set.WorkloadType(ctx, *in); err != nil {
		return err
	}
	in.Workload, err = e.requestDocuments.document(requested)
	return err
}

// denialsForChanges returns a denial for each policy that still changes the object.
func denialsForChanges(merged merge.Result, format string) []merge.Finding {
	var denials []merge.Finding
	for _, policy := range slices.Sorted(maps.Keys(merged.ChangedPaths)) {
		denials = append(denials, merge.Finding{
			Policy:  policy,
			Message: fmt.Sprintf(format, strings.Join(merged.ChangedPaths[policy], ", ")),
			Fix:     contactAdministrators,
		})
	}
	return denials
}
