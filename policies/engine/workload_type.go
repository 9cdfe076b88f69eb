// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine/document"
)

// ErrTypeConflict reports that two policies set different types for a workload.
var ErrTypeConflict = errors.New("the policies disagree about the workload's type")

// TypeError reports that policies could not determine a workload's type. It wraps
// [ErrTypeConflict], or the errors of policies that failed; see [Failure].
type TypeError struct {
	// Policies are the sorted names of the policies that failed or conflict.
	Policies []string
	Err      error
}

// Error names the policies and the cause.
func (e *TypeError) Error() string {
	return fmt.Sprintf("workload type: %s: %v", strings.Join(e.Policies, ", "), e.Err)
}

// Unwrap returns the cause.
func (e *TypeError) Unwrap() error { return e.Err }

// WorkloadType evaluates the rule type of every policy that matches, for a workload
// without an explicit type. The type is train if no policy sets one. It ignores Now and
// Usage of the input. Failures and conflicts return a [*TypeError]; the object must then
// not be admitted unless its author sets the type. [ErrRequestDeadline] and [ErrBusy] blame no
// policy.
func (s *Set) WorkloadType(ctx context.Context, in Input) (v1alpha1.WorkloadType, error) {
	if in.object().IsAbsent() {
		return "", ErrNoObject
	}
	matched := slices.DeleteFunc(s.match(in.Subject, typeRequest), func(m *member) bool {
		return m.enforcement() == v1alpha1.EnforcementDryRun
	})
	if len(matched) == 0 {
		return v1alpha1.WorkloadTrain, nil
	}
	in.Now, in.Usage = time.Time{}, document.Document{}
	ctx, cancel := context.WithTimeout(ctx, s.options.Limits.Request)
	defer cancel()
	responses := s.evaluateAll(ctx, typeRequest, matched, in.bind())
	if err := requestError(responses); err != nil {
		return "", err
	}
	evaluations := make([]Evaluation, len(matched))
	for i, m := range matched {
		evaluations[i] = Evaluation{
			Policy: m.source.Name, Enforcement: m.enforcement(), TypeResolution: true,
			Cached: responses[i].cached, Duration: responses[i].duration, Result: resultOf(responses[i].err, nil, nil),
		}
		if evaluations[i].Result == ResultTimedOut {
			evaluations[i].Version, evaluations[i].Project = m.version(), in.Subject.Project
		}
	}
	s.observe(evaluations)
	return agreedType(matched, responses)
}

// agreedType returns the one type that the policies set.
func agreedType(members []*member, responses []response[policyResult]) (v1alpha1.WorkloadType, error) {
	var (
		failed, setters []string
		failures        []error
		types           []v1alpha1.WorkloadType
	)
	for i, m := range members {
		name, workloadType := m.source.Name, responses[i].value.workloadType
		switch {
		case responses[i].err != nil:
			failed = append(failed, name)
			failures = append(failures, responses[i].err)
		case workloadType != "":
			setters = append(setters, name)
			types = append(types, workloadType)
		}
	}
	switch {
	case len(failed) > 0:
		return "", &TypeError{Policies: failed, Err: errors.Join(failures...)}
	case len(types) == 0:
		return v1alpha1.WorkloadTrain, nil
	}
	for i, other := range types {
		if other != types[0] {
			return "", &TypeError{
				Policies: []string{setters[0], setters[i]},
				Err: fmt.Errorf("%w: %s sets %s and %s sets %s; set the label %s yourself, or report this to the cluster's administrators",
					ErrTypeConflict, setters[0], types[0], setters[i], other, v1alpha1.LabelWorkloadType),
			}
		}
	}
	return types[0], nil
}

// parseWorkloadType parses the value of type: at most one string.
func parseWorkloadType(value ast.Value) (v1alpha1.WorkloadType, error) {
	found, ok := value.(*ast.Array)
	if !ok || found.Len() == 0 {
		return "", nil
	}
	text, ok := found.Elem(0).Value.(ast.String)
	if !ok {
		return "", newValueError("must be a string, and is %s", ast.ValueName(found.Elem(0).Value))
	}
	workloadType := v1alpha1.WorkloadType(text)
	if !slices.Contains(v1alpha1.WorkloadTypes, workloadType) {
		return "", newValueError("is %q; train, interactive and inference are allowed", singleLine(string(text)))
	}
	return workloadType, nil
}
