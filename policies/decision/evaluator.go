// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"context"
	"errors"
	"slices"

	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/schema"
)

// Evaluator evaluates policies on objects. It is safe for concurrent use.
type Evaluator struct {
	// Cluster has the API server's defaults that differ between clusters.
	Cluster schema.ClusterDefaults

	requestDocuments requestDocumentCache
}

// Result is what the policies decide on an object.
type Result struct {
	// Denials are all reasons to deny the object; empty if it is allowed.
	Denials []merge.Finding
	// Warnings are for the object's author.
	Warnings []merge.Finding
	// Paused are the policies that would deny the object without the pause.
	Paused []string
	// Exempted are the policies that would deny the object without an exemption.
	Exempted []string
	// Warned are the first findings of the policies in Warn that would deny the object.
	Warned []merge.Finding
	// Original is the object as received; nil if it is no object. Merged is the object with the policies' changes: it
	// shares its unchanged parts with Original, and has no meaning if the object is denied.
	Original map[string]any
	Merged   merge.Result
	// Input is what the policies read first; nil if none was evaluated. InputBytes is the size of its object as JSON.
	Input      *engine.Input
	InputBytes int
	// Evaluations are the first evaluations of the policies, with their durations.
	Evaluations []engine.Evaluation
	// Transient reports that the result must not be cached: a policy could not be evaluated, or was skipped.
	Transient bool
}

// Mutate evaluates an object that can still change. It denies an object that is too large before it evaluates any
// policy. After an error the object must not be admitted.
func (e *Evaluator) Mutate(ctx context.Context, request Request) (Result, error) {
	object, result, err := request.decode()
	if err != nil || len(result.Denials) > 0 {
		return result, err
	}
	changes, err := e.evaluate(ctx, &request, object, &result)
	if err != nil || len(result.Denials) > 0 {
		return result, err
	}
	if err := e.applyUntilStable(ctx, &request, &result, changes); err != nil || len(result.Denials) > 0 {
		return result, err
	}
	for _, warning := range result.Merged.Warnings {
		result.Warnings = append(result.Warnings, merge.Finding{Message: warning.String()})
	}
	return result, nil
}

// Validate evaluates an object that can no longer change. It enforces the values that policies require, and
// ignores their defaults and appended elements.
func (e *Evaluator) Validate(ctx context.Context, request Request) (Result, error) {
	object, result, err := request.decode()
	if err != nil || len(result.Denials) > 0 {
		return result, err
	}
	changes, err := e.evaluate(ctx, &request, object, &result)
	if err != nil || len(result.Denials) > 0 {
		return result, err
	}
	if result.Merged, err = merge.ApplyRequired(result.Original, changes, e.Cluster); err != nil {
		result.Denials = denialsForMergeError(err)
		return result, nil
	}
	result.Denials = denialsForChanges(result.Merged, "another webhook reverted what this policy requires: %s", nil)
	return result, nil
}

// maxReevaluations limits how often a changed object is evaluated again. Usually once is enough; a policy may add a
// container whose environment another policy then sets.
const maxReevaluations = 3

// applyUntilStable sets result.Merged to the object with the changes of all policies, and with those that they request
// of what other policies added. It denies the object if a policy never settles.
func (e *Evaluator) applyUntilStable(
	ctx context.Context, request *Request, result *Result, changes []merge.DesiredChanges,
) (err error) {
	for round := 1; ; round++ {
		if result.Merged, err = merge.Apply(result.Original, changes, e.Cluster); err != nil {
			result.Denials = denialsForMergeError(err)
			return nil
		}
		if len(result.Merged.ChangedPaths) == 0 {
			return nil
		}
		var again Result
		requested, err := e.evaluate(ctx, request, document.FromObject(result.Merged.Object), &again)
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

// evaluate evaluates all policies on one state of the object, adds what they find to the result, and returns the changes
// that they request. It denies an invalid GPU request without evaluating any policy.
func (e *Evaluator) evaluate(
	ctx context.Context, request *Request, object document.Document, result *Result,
) ([]merge.DesiredChanges, error) {
	requested, err := request.workloadRequest(object.Object())
	var invalid workload.InvalidRequest
	if errors.As(err, &invalid) {
		result.Denials = denialsForInvalidRequest(invalid)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	documents := &request.Tenant.Documents
	in := &engine.Input{
		Subject: request.Subject(),
		Review:  request.Review, Object: object,
		Project: documents.Project, Department: documents.Department, NodePools: documents.NodePools,
		Namespace: documents.Namespace, Usage: documents.Use,
		Now:      request.Now.In(request.Tenant.TimeZone),
		Template: request.IsTemplate, Existing: request.isExisting, PausedUntil: request.Tenant.PausedUntil,
	}
	if err := e.setWorkload(ctx, request.Policies, in, &requested); err != nil {
		return nil, err
	}
	outcome, err := request.Policies.Evaluate(ctx, *in)
	if err != nil {
		return nil, err
	}
	result.Input, result.InputBytes, result.Evaluations = in, len(request.Raw), outcome.Evaluations
	result.Denials, result.Warnings, result.Paused = outcome.Denials, outcome.Warnings, outcome.Paused
	if !request.IsJob { // its template is evaluated as well
		denials, warnings := CheckKeys(object.Object(), &requested, request.Tenant.Schedulers)
		result.Denials, result.Warnings = slices.Concat(denials, result.Denials), slices.Concat(warnings, result.Warnings)
	}
	result.Exempted = outcome.Exempted
	result.Warned = warnedFindings(&outcome)
	result.Transient = slices.ContainsFunc(outcome.Evaluations, func(e engine.Evaluation) bool { return !e.IsComplete() })
	return outcome.Changes, nil
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
