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
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/defaulted"
)

// Evaluator asks the policies of an engine.
type Evaluator struct {
	// Engine has the policies in force.
	Engine *engine.Engine
	// Clock is policy time, for input.now.
	Clock policytime.Clock
	// Cluster is what the API server fills in that differs between clusters.
	Cluster defaulted.Cluster
	// WorkerSlots are how many questions are judged at once; any number where it is nil.
	// More than there are processors would only make each slower, until policies
	// pass their deadlines.
	WorkerSlots *semaphore.Weighted

	requestDocuments requestDocumentCache
}

// acquire waits until a question may be judged. It returns the policies that it is
// asked of from first to last, and what ends its turn.
func (j *Evaluator) acquire(ctx context.Context, q *Request) (*engine.Set, func(), error) {
	end := func() {}
	if j.WorkerSlots != nil {
		if err := j.WorkerSlots.Acquire(ctx, 1); err != nil {
			return nil, nil, fmt.Errorf("the request's time was over before it was judged: %w", err)
		}
		end = func() { j.WorkerSlots.Release(1) }
	}
	if q.Policies != nil {
		return q.Policies, end, nil
	}
	set, err := j.Engine.Current()
	if err != nil {
		end()
		return nil, nil, err
	}
	return set, end, nil
}

// Result is what became of a question.
type Result struct {
	// Denials are why it is refused, all of them; none means that it is not.
	Denials []merge.Finding
	// Warnings are for its author.
	Warnings []merge.Finding
	// Original is the object as it came, and Result what the policies made of it, which
	// shares with it what is unchanged; without sense where it is refused.
	Original map[string]any
	Merged   merge.Result
	// DryRun is what policies in DryRun would have done.
	DryRun engine.DryRunOutcome
	// PolicyFailed tells that a policy could not be asked, so that the next time the
	// judgment may be another.
	PolicyFailed bool
}

// Mutate judges an object that may still be changed. An error means that the
// question could not be asked: the object must not be admitted.
func (j *Evaluator) Mutate(ctx context.Context, q Request) (Result, error) {
	set, end, err := j.acquire(ctx, &q)
	if err != nil {
		return Result{}, err
	}
	defer end()
	object, err := q.decodeObject()
	if err != nil {
		return Result{}, err
	}
	judged, intents, err := j.evaluate(ctx, set, &q, object)
	if err != nil || len(judged.Denials) > 0 {
		return judged, err
	}
	judged.Original = object.Object()
	if judged.Merged, err = merge.Apply(judged.Original, intents, j.Cluster); err != nil {
		judged.Denials = denialsForMergeError(err)
		return judged, nil
	}
	for _, warning := range judged.Merged.Warnings {
		judged.Warnings = append(judged.Warnings, merge.Finding{Message: warning.String()})
	}
	if len(judged.Merged.ChangedPaths) == 0 {
		return judged, nil
	}
	again, err := j.reevaluate(ctx, set, &q, judged.Merged.Object)
	judged.Denials, judged.PolicyFailed = again.Denials, judged.PolicyFailed || again.PolicyFailed
	return judged, err
}

// reevaluate asks once more, about what the policies made of the object: what they
// refuse of that, or still want changed.
func (j *Evaluator) reevaluate(ctx context.Context, set *engine.Set, q *Request, object map[string]any) (Result, error) {
	again, intents, err := j.evaluate(ctx, set, q, document.FromObject(object))
	if err != nil || len(again.Denials) > 0 {
		return again, err
	}
	result, err := merge.Apply(object, intents, j.Cluster)
	if err != nil {
		again.Denials = denialsForMergeError(err)
		return again, nil
	}
	again.Denials = denialsForChanges(result, "wants something else of what it made itself: %s")
	return again, nil
}

// Validate judges an object that can no longer be changed: what the policies
// demand must hold of it. What they only default or append need not.
func (j *Evaluator) Validate(ctx context.Context, q Request) (Result, error) {
	set, end, err := j.acquire(ctx, &q)
	if err != nil {
		return Result{}, err
	}
	defer end()
	object, err := q.decodeObject()
	if err != nil {
		return Result{}, err
	}
	judged, intents, err := j.evaluate(ctx, set, &q, object)
	if err != nil || len(judged.Denials) > 0 {
		return judged, err
	}
	demanded := slices.Clone(intents)
	for i := range demanded {
		demanded[i].Defaults, demanded[i].Append = nil, nil
	}
	if judged.Merged, err = merge.Apply(object.Object(), demanded, j.Cluster); err != nil {
		judged.Denials = denialsForMergeError(err)
		return judged, nil
	}
	judged.Denials = denialsForChanges(judged.Merged, "its demand was undone after it was met, by another webhook: %s")
	return judged, nil
}

// evaluate asks all policies about one state of the object. What asks for the
// impossible is refused before any policy is asked.
func (j *Evaluator) evaluate(ctx context.Context, set *engine.Set, q *Request, object document.Document) (Result, []merge.DesiredChanges, error) {
	request, err := q.workloadRequest(object.Object())
	var malformed workload.InvalidRequest
	if errors.As(err, &malformed) {
		return Result{Denials: denialsForMalformed(malformed)}, nil, nil
	}
	if err != nil {
		return Result{}, nil, err
	}
	in := engine.Input{
		Subject: q.Subject(),
		Review:  q.Review, Object: object,
		Project: q.Tenant.Documents.Project, Department: q.Tenant.Documents.Department, NodePools: q.Tenant.Documents.NodePools,
		Now:      j.Clock.Now().In(q.Tenant.TimeZone),
		Template: q.IsTemplate,
	}
	if err := j.resolveType(ctx, set, &in, &request); err != nil {
		return Result{}, nil, err
	}
	outcome, err := set.Evaluate(ctx, in)
	if err != nil {
		return Result{}, nil, err
	}
	return Result{Denials: outcome.Denials, Warnings: outcome.Warnings, DryRun: outcome.DryRun, PolicyFailed: len(outcome.Failures) > 0}, outcome.Changes, nil
}

// resolveType fills in what the pod asks for, with the type that policies give it where
// its author said none.
func (j *Evaluator) resolveType(ctx context.Context, set *engine.Set, in *engine.Input, request *workload.Request) (err error) {
	if in.Workload, err = j.requestDocuments.document(request); err != nil || request.Type != "" {
		return err
	}
	if request.Type, err = set.WorkloadType(ctx, *in); err != nil {
		return err
	}
	in.Workload, err = j.requestDocuments.document(request)
	return err
}

// denialsForChanges are complaints about policies that still change something.
func denialsForChanges(result merge.Result, format string) []merge.Finding {
	var complaints []merge.Finding
	for _, policy := range slices.Sorted(maps.Keys(result.ChangedPaths)) {
		complaints = append(complaints, merge.Finding{
			Policy:  policy,
			Message: fmt.Sprintf(format, strings.Join(result.ChangedPaths[policy], ", ")),
			Fix:     "tell the cluster's administrators",
		})
	}
	return complaints
}

// Request is what is to be judged.
type Request struct {
	// Policies are whom to ask; nil for those in force.
	Policies *engine.Set
	// Raw is the pod, the template in the form of a pod, or the Job, as JSON.
	Raw []byte
	// IsJob tells that it is a Job.
	IsJob bool
	// Review is the request that it came in, without the object.
	Review document.Document
	// Tenant is whose it is.
	Tenant *Tenant
	// Operation is CREATE or UPDATE.
	Operation v1alpha1.PolicyOperation
	// IsTemplate tells that the pod does not exist yet. Owner is then the kind that
	// will make it.
	IsTemplate bool
	Owner      workload.Owner
}

// Subject is what policies' matches are compared with: a template is judged as
// the pod that it will be.
func (q *Request) Subject() engine.Subject {
	subject := engine.Subject{
		Operation: q.Operation, Kind: "Pod",
		Department: q.Tenant.Department, Project: q.Tenant.Project,
		Schedulers: q.Tenant.Schedulers,
	}
	if q.IsJob {
		subject.Group, subject.Kind = jobOwner.Group, jobOwner.Kind
	}
	return subject
}

// decodeObject is the object as it came.
func (q *Request) decodeObject() (document.Document, error) {
	object, err := document.Decode(q.Raw)
	switch {
	case err != nil:
		return object, fmt.Errorf("reading the object: %w", err)
	case object.Object() == nil:
		return object, errNotAnObject
	}
	return object, nil
}

var errNotAnObject = errors.New("reading the object: it is no JSON object")
