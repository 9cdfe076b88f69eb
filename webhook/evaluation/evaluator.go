// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/schema"
	"sluice.dev/policies/replica"
)

// Evaluator evaluates the policies of an engine.
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

	requestDocuments requestDocumentCache
}

// Result is the outcome of a request.
type Result struct {
	// Denials are all reasons to deny the object; empty if it is allowed.
	Denials []merge.Finding
	// Warnings are for the object's author.
	Warnings []merge.Finding
	// Paused are the policies that would deny the object without the pause.
	Paused []string
	// Original is the object as received, and Merged the object with the policies' changes. Merged shares its
	// unchanged parts with Original, and has no meaning if the object is denied.
	Original map[string]any
	Merged   merge.Result
	// Violations are what [Evaluator.Count] counts.
	Violations Violations
	// Transient reports that the result must not be cached: a policy could not be evaluated, or was skipped.
	Transient bool
}

// Mutate evaluates an object that can still change. It denies an object that is too large before it evaluates any
// policy. After an error the object must not be admitted.
func (e *Evaluator) Mutate(ctx context.Context, request Request) (Result, error) {
	ctx, set, release, err := e.begin(ctx, &request)
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
	in, result, changes, err := e.evaluate(ctx, set, &request, object)
	if err == nil {
		err = e.mutate(ctx, set, &request, object, &result, changes)
	}
	if e.DryRun != nil && in != nil {
		var added bool
		result.Violations.dryRun, added = e.DryRun.add(e, set, in, len(request.Raw))
		result.Transient = result.Transient || !added
	}
	result.Violations.denied = newViolations(set, result.Denials, object.Object())
	return result, err
}

// mutate merges the changes of the policies into an object that they admit, and evaluates them again.
func (e *Evaluator) mutate(
	ctx context.Context, set *engine.Set, request *Request, object document.Document, result *Result, changes []merge.DesiredChanges,
) error {
	if len(result.Denials) > 0 {
		return nil
	}
	result.Original = object.Object()
	if err := e.applyUntilStable(ctx, set, request, result, changes); err != nil || len(result.Denials) > 0 {
		return err
	}
	for _, warning := range result.Merged.Warnings {
		result.Warnings = append(result.Warnings, merge.Finding{Message: warning.String()})
	}
	return nil
}

// maxReevaluations limits how often a changed object is evaluated again. Usually once is enough; a policy may add a
// container whose environment another policy then sets.
const maxReevaluations = 3

// applyUntilStable sets result.Merged to the object with the changes of all policies, and with those that they request
// of what other policies added. It denies the object if a policy never settles.
func (e *Evaluator) applyUntilStable(
	ctx context.Context, set *engine.Set, request *Request, result *Result, changes []merge.DesiredChanges,
) (err error) {
	for round := 1; ; round++ {
		if result.Merged, err = merge.Apply(result.Original, changes, e.Cluster); err != nil {
			result.Denials = denialsForMergeError(err)
			return nil
		}
		if len(result.Merged.ChangedPaths) == 0 {
			return nil
		}
		_, again, requested, err := e.evaluate(ctx, set, request, document.FromObject(result.Merged.Object))
		if err != nil {
			return err
		}
		result.Transient = result.Transient || again.Transient
		if result.Denials = denialsOfChanged(again.Denials, result.Merged.ChangedPaths); len(result.Denials) > 0 {
			return nil
		}
		further, err := merge.Apply(result.Merged.Object, requested, e.Cluster)
		if err != nil {
			result.Denials = denialsForMergeError(err)
			return nil
		}
		if len(further.ChangedPaths) == 0 {
			return nil
		}
		if round == maxReevaluations || changesAgain(result.Merged.ChangedPaths, further.ChangedPaths) {
			result.Denials = denialsForChanges(further, "requests further changes to the object that it changed: %s", result.Merged.ChangedPaths)
			return nil
		}
		for i := range requested {
			if _, ok := further.ChangedPaths[requested[i].Policy]; ok {
				changes = append(slices.Clip(changes), requested[i])
			}
		}
	}
}

// changesAgain reports whether a policy changes a path again that it changed before: it would never settle.
func changesAgain(before, further map[string][]string) bool {
	for policy, paths := range further {
		if slices.ContainsFunc(paths, func(path string) bool { return slices.Contains(before[policy], path) }) {
			return true
		}
	}
	return false
}

// Validate evaluates an object that can no longer change. It enforces the values that policies require, and
// ignores their defaults and appended elements.
func (e *Evaluator) Validate(ctx context.Context, request Request) (Result, error) {
	ctx, set, release, err := e.begin(ctx, &request)
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
	_, result, changes, err := e.evaluate(ctx, set, &request, object)
	if err != nil || len(result.Denials) > 0 {
		result.Violations = Violations{denied: newViolations(set, result.Denials, object.Object())}
		return result, err
	}
	if result.Merged, err = merge.ApplyRequired(object.Object(), changes, e.Cluster); err != nil {
		result.Denials = denialsForMergeError(err)
		return result, nil
	}
	result.Denials = denialsForChanges(result.Merged, "another webhook reverted what this policy requires: %s", nil)
	result.Violations.denied = newViolations(set, result.Denials, object.Object())
	return result, nil
}

// begin waits for a slot. It returns the context and the policies for the whole request, and the function that
// ends the request.
func (e *Evaluator) begin(ctx context.Context, request *Request) (context.Context, *engine.Set, func(), error) {
	end := func() {}
	if e.Timeout > 0 {
		ctx, end = context.WithTimeout(ctx, e.Timeout)
	}
	if e.Slots != nil {
		release, err := e.Slots.Acquire(ctx, request.Tenant.Project)
		if err != nil {
			end()
			return nil, nil, nil, fmt.Errorf("wait for an evaluation slot: %w", err)
		}
		cancel := end
		end = func() { release(); cancel() }
	}
	set := request.Policies
	if set == nil {
		var err error
		if set, err = e.Engine.Current(); err != nil {
			end()
			return nil, nil, nil, err
		}
	}
	return ctx, set, end, nil
}

// evaluate evaluates all policies on one state of the object, and returns what they read. It denies an invalid
// GPU request without evaluating any policy.
func (e *Evaluator) evaluate(
	ctx context.Context, set *engine.Set, request *Request, object document.Document,
) (*engine.Input, Result, []merge.DesiredChanges, error) {
	requested, err := request.workloadRequest(object.Object())
	var invalid workload.InvalidRequest
	if errors.As(err, &invalid) {
		return nil, Result{Denials: denialsForInvalidRequest(invalid)}, nil, nil
	}
	if err != nil {
		return nil, Result{}, nil, err
	}
	documents := &request.Tenant.Documents
	in := &engine.Input{
		Subject: request.Subject(),
		Review:  request.Review, Object: object,
		Project: documents.Project, Department: documents.Department, NodePools: documents.NodePools,
		Usage:    documents.Use,
		Now:      e.Clock.Now().In(request.Tenant.TimeZone),
		Template: request.IsTemplate, PausedUntil: request.Tenant.PausedUntil,
	}
	if err := e.setWorkload(ctx, set, in, &requested); err != nil {
		return nil, Result{}, nil, err
	}
	outcome, err := set.Evaluate(ctx, *in)
	if err != nil {
		return nil, Result{}, nil, err
	}
	transient := slices.ContainsFunc(outcome.Evaluations, func(e engine.Evaluation) bool { return !e.IsComplete() })
	return in, Result{
		Denials: outcome.Denials, Warnings: outcome.Warnings, Paused: outcome.Paused, Transient: transient,
		Violations: Violations{warned: newViolations(set, warnedFindings(&outcome), object.Object())},
	}, outcome.Changes, nil
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
