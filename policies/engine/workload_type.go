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

// ErrTypeConflict means that two policies want different types for a workload.
var ErrTypeConflict = errors.New("the policies disagree about the workload's type")

// TypeError says that policies could not tell a workload's type. It wraps
// [ErrTypeConflict], or why a policy could not be asked: see [Failure].
type TypeError struct {
	// Policies are the names of the policies at fault, sorted.
	Policies []string
	// Err is what is wrong.
	Err error
}

// Error names the policies and says what is wrong.
func (e *TypeError) Error() string {
	return fmt.Sprintf("workload type: %s: %v", strings.Join(e.Policies, ", "), e.Err)
}

// Unwrap returns what is wrong.
func (e *TypeError) Unwrap() error { return e.Err }

// WorkloadType asks every policy that matches and defines type for the type of a workload
// whose author said none. It is train where no policy says another. The input's
// Now and Use are not looked at. A policy that errs and policies that disagree
// are a [*TypeError]; the object must then not be admitted, unless its author says
// the type.
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
	replies := s.evaluateAll(ctx, typeRequest, matched, in.bind())
	evaluations := make([]Evaluation, len(matched))
	for i, m := range matched {
		evaluations[i] = Evaluation{
			Policy: m.source.Name, Enforcement: m.enforcement(), TypeResolution: true,
			Cached: replies[i].cached, Duration: replies[i].duration, Result: resultOf(replies[i].err, nil, nil),
		}
	}
	s.observe(evaluations)
	return agreedType(matched, replies)
}

// agreedType is the one type that policies said.
func agreedType(asked []*member, replies []response[policyResult]) (v1alpha1.WorkloadType, error) {
	var (
		failed, said []string
		faults       []error
		types        []v1alpha1.WorkloadType
	)
	for i, m := range asked {
		name, given := m.source.Name, replies[i].value.workloadType
		switch {
		case replies[i].err != nil:
			failed = append(failed, name)
			faults = append(faults, replies[i].err)
		case given != "":
			said = append(said, name)
			types = append(types, given)
		}
	}
	switch {
	case len(failed) > 0:
		return "", &TypeError{Policies: failed, Err: errors.Join(faults...)}
	case len(types) == 0:
		return v1alpha1.WorkloadTrain, nil
	}
	for i, other := range types {
		if other != types[0] {
			return "", &TypeError{
				Policies: []string{said[0], said[i]},
				Err: fmt.Errorf("%w: %s says %s and %s says %s; set the label %s yourself, or tell the cluster's administrators",
					ErrTypeConflict, said[0], types[0], said[i], other, v1alpha1.LabelWorkloadType),
			}
		}
	}
	return types[0], nil
}

// parseWorkloadType reads the value of type: at most one string.
func parseWorkloadType(value ast.Value) (v1alpha1.WorkloadType, error) {
	found, ok := value.(*ast.Array)
	if !ok || found.Len() == 0 {
		return "", nil
	}
	text, ok := found.Elem(0).Value.(ast.String)
	if !ok {
		return "", newValueError("must be a string, and is %s", ast.ValueName(found.Elem(0).Value))
	}
	given := v1alpha1.WorkloadType(text)
	if !slices.Contains(v1alpha1.WorkloadTypes, given) {
		return "", newValueError("is %q; train, interactive and inference are allowed", singleLine(string(text)))
	}
	return given, nil
}
