// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/semaphore"

	"sluice.dev/api/clock"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/filled"
)

// Judge asks the policies of an engine.
type Judge struct {
	// Engine has the policies in force.
	Engine *engine.Engine
	// Clock is policy time, for input.now.
	Clock clock.Clock
	// Cluster is what the API server fills in that differs between clusters.
	Cluster filled.Cluster
	// Turns are how many questions are judged at once; any number where it is nil.
	// More than there are processors would only make each slower, until policies
	// pass their deadlines.
	Turns *semaphore.Weighted

	requests described
}

// begin waits until a question may be judged. It returns the policies that it is
// asked of from first to last, and what ends its turn.
func (j *Judge) begin(ctx context.Context, q *Question) (*engine.Set, func(), error) {
	end := func() {}
	if j.Turns != nil {
		if err := j.Turns.Acquire(ctx, 1); err != nil {
			return nil, nil, fmt.Errorf("the request's time was over before it was judged: %w", err)
		}
		end = func() { j.Turns.Release(1) }
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

// Judgement is what became of a question.
type Judgement struct {
	// Denials are why it is refused, all of them; none means that it is not.
	Denials []intent.Complaint
	// Warnings are for its author.
	Warnings []intent.Complaint
	// Before is the object as it came, and Result what the policies made of it, which
	// shares with it what is unchanged; without sense where it is refused.
	Before map[string]any
	Result merge.Result
	// Trial is what policies in DryRun would have done.
	Trial engine.Trial
	// Failed tells that a policy could not be asked, so that the next time the
	// judgement may be another.
	Failed bool
}

// Settle judges an object that may still be changed. An error means that the
// question could not be asked: the object must not be admitted.
func (j *Judge) Settle(ctx context.Context, q Question) (Judgement, error) {
	set, end, err := j.begin(ctx, &q)
	if err != nil {
		return Judgement{}, err
	}
	defer end()
	object, err := q.object()
	if err != nil {
		return Judgement{}, err
	}
	judged, intents, err := j.ask(ctx, set, &q, object)
	if err != nil || len(judged.Denials) > 0 {
		return judged, err
	}
	judged.Before = object.Object()
	if judged.Result, err = merge.Apply(judged.Before, intents, j.Cluster); err != nil {
		judged.Denials = faults(err)
		return judged, nil
	}
	for _, warning := range judged.Result.Warnings {
		judged.Warnings = append(judged.Warnings, intent.Complaint{Message: warning.String()})
	}
	if len(judged.Result.Changes) == 0 {
		return judged, nil
	}
	again, err := j.settled(ctx, set, &q, judged.Result.Object)
	judged.Denials, judged.Failed = again.Denials, judged.Failed || again.Failed
	return judged, err
}

// settled asks once more, about what the policies made of the object: what they
// refuse of that, or still want changed.
func (j *Judge) settled(ctx context.Context, set *engine.Set, q *Question, object map[string]any) (Judgement, error) {
	again, intents, err := j.ask(ctx, set, q, engine.FromObject(object))
	if err != nil || len(again.Denials) > 0 {
		return again, err
	}
	result, err := merge.Apply(object, intents, j.Cluster)
	if err != nil {
		again.Denials = faults(err)
		return again, nil
	}
	again.Denials = demands(result, "wants something else of what it made itself: %s")
	return again, nil
}

// Check judges an object that can no longer be changed: what the policies
// demand must hold of it. What they only default or append need not.
func (j *Judge) Check(ctx context.Context, q Question) (Judgement, error) {
	set, end, err := j.begin(ctx, &q)
	if err != nil {
		return Judgement{}, err
	}
	defer end()
	object, err := q.object()
	if err != nil {
		return Judgement{}, err
	}
	judged, intents, err := j.ask(ctx, set, &q, object)
	if err != nil || len(judged.Denials) > 0 {
		return judged, err
	}
	demanded := slices.Clone(intents)
	for i := range demanded {
		demanded[i].Defaults, demanded[i].Append = nil, nil
	}
	if judged.Result, err = merge.Apply(object.Object(), demanded, j.Cluster); err != nil {
		judged.Denials = faults(err)
		return judged, nil
	}
	judged.Denials = demands(judged.Result, "its demand was undone after it was met, by another webhook: %s")
	return judged, nil
}

// ask asks all policies about one state of the object. What asks for the
// impossible is refused before any policy is asked.
func (j *Judge) ask(ctx context.Context, set *engine.Set, q *Question, object engine.Document) (Judgement, []intent.Intent, error) {
	request, err := q.request(object.Object())
	var malformed workload.Malformed
	if errors.As(err, &malformed) {
		return Judgement{Denials: complaintsOf(malformed)}, nil, nil
	}
	if err != nil {
		return Judgement{}, nil, err
	}
	in := engine.Input{
		Subject: q.Subject(),
		Review:  q.Review, Object: object,
		Project: q.Tenant.Documents.Project, Department: q.Tenant.Documents.Department, NodePools: q.Tenant.Documents.NodePools,
		Now:      j.Clock.Now().In(q.Tenant.Zone),
		Template: q.Template,
	}
	if err := j.typed(ctx, set, &in, &request); err != nil {
		return Judgement{}, nil, err
	}
	outcome, err := set.Evaluate(ctx, in)
	if err != nil {
		return Judgement{}, nil, err
	}
	return Judgement{Denials: outcome.Denials, Warnings: outcome.Warnings, Trial: outcome.DryRun, Failed: len(outcome.Failures) > 0}, outcome.Intents, nil
}

// typed fills in what the pod asks for, with the type that policies give it where
// its author said none.
func (j *Judge) typed(ctx context.Context, set *engine.Set, in *engine.Input, request *workload.Request) (err error) {
	if in.Workload, err = j.requests.of(request); err != nil || request.Type != "" {
		return err
	}
	if request.Type, err = set.Type(ctx, *in); err != nil {
		return err
	}
	in.Workload, err = j.requests.of(request)
	return err
}

// demands are complaints about policies that still change something.
func demands(result merge.Result, format string) []intent.Complaint {
	var complaints []intent.Complaint
	for _, policy := range slices.Sorted(maps.Keys(result.Changes)) {
		complaints = append(complaints, intent.Complaint{
			Policy:  policy,
			Message: fmt.Sprintf(format, strings.Join(result.Changes[policy], ", ")),
			Fix:     "tell the cluster's administrators",
		})
	}
	return complaints
}
