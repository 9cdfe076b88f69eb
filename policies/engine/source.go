// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine/document"
)

// maxSourceBytes is the largest module, in bytes; that of the Policy kind's schema.
const maxSourceBytes = 256 << 10

// Source is one policy as its author gave it.
type Source struct {
	// Name is the policy's name: core.gpu, or that of a Policy object. Two sources
	// never share one: a built-in policy keeps its name, others lose it both.
	Name string
	// Rego is the module, at most 256 KiB.
	Rego string
	// Enforcement is Deny where it is empty.
	Enforcement v1alpha1.Enforcement
	// Match says which objects the policy is asked about; empty is all.
	Match v1alpha1.PolicyMatch
	// Parameters is the JSON object that the policy reads as input.parameters;
	// empty is {}.
	Parameters []byte
	// BuiltIn tells that the policy came with Sluice.
	BuiltIn bool
	// Replaces names a built-in policy that is not asked while this one is in
	// force. A DryRun policy replaces nothing.
	Replaces string
	// Generation is handed back in reports: that of the Policy object.
	Generation int64
}

// FromPolicy returns the Source of a Policy object.
func FromPolicy(policy *v1alpha1.Policy) Source {
	source := Source{
		Name:        policy.Name,
		Rego:        policy.Spec.Rego,
		Enforcement: policy.Spec.Enforcement,
		Match:       policy.Spec.Match,
		Replaces:    policy.Spec.Replaces,
		Generation:  policy.Generation,
	}
	if policy.Spec.Parameters != nil {
		source.Parameters = policy.Spec.Parameters.Raw
	}
	return source
}

// Library is a module that policies may import: its package is data.sluice.lib
// or below, or data.lib, where Gatekeeper's templates look for theirs. Libraries
// read no data but each other.
type Library struct {
	// Name is the file's name, for errors.
	Name string
	// Rego is the module.
	Rego string
}

// digest identifies everything about a source but its generation.
type digest [sha256.Size]byte

func (s Source) digest() digest {
	h := sha256.New()
	match, _ := json.Marshal(s.Match) // lists of strings always encode
	for _, part := range []string{s.Name, s.Rego, string(s.Enforcement), string(match), string(s.Parameters), s.Replaces} {
		hashText(h, part)
	}
	hashText(h, strconv.FormatBool(s.BuiltIn))
	return digest(h.Sum(nil))
}

// hashText writes a text with its length, so that no two lists of texts look
// alike.
func hashText(h hash.Hash, text string) {
	fmt.Fprintf(h, "%d:", len(text))
	_, _ = io.WriteString(h, text)
}

// enforcement is the source's, Deny where it is empty.
func (s Source) enforcement() v1alpha1.Enforcement {
	if s.Enforcement == "" {
		return v1alpha1.EnforcementDeny
	}
	return s.Enforcement
}

// validate returns the parameters' term, and what is wrong with everything but
// the module.
func (s Source) validate() (*ast.Term, []Problem) {
	var problems []Problem
	complain := func(format string, args ...any) {
		problems = append(problems, Problem{Message: fmt.Sprintf(format, args...)})
	}
	switch s.enforcement() {
	case v1alpha1.EnforcementDeny, v1alpha1.EnforcementWarn, v1alpha1.EnforcementDryRun:
	default:
		complain("enforcement is %q; Deny, Warn and DryRun are allowed", s.Enforcement)
	}
	if len(s.Parameters) == 0 {
		return ast.InternedEmptyObject, problems
	}
	parameters, err := document.Decode(s.Parameters)
	if err != nil {
		complain("parameters: %v", err)
	} else if _, ok := parameters.Value().(map[string]any); !ok {
		complain("parameters must be a JSON object")
	}
	return parameters.Term(), problems
}

// maxProblems is how many problems of one policy are reported.
const maxProblems = 100

// Problem is one thing that is wrong with a policy's source, or, as a warning,
// that probably is. It is an error.
type Problem struct {
	// Policy is the policy's name.
	Policy string
	// Library is the library that is at fault instead of the policy; mostly empty.
	Library string
	// Line and Column are counted from 1; 0 where no place is at fault.
	Line, Column int
	// Message is what is wrong and what to do.
	Message string
}

// Error is the problem with its place: name:line:column: message.
func (p Problem) Error() string {
	place := p.Policy
	if p.Library != "" {
		place += " (library " + p.Library + ")"
	}
	if p.Line > 0 {
		place += fmt.Sprintf(":%d:%d", p.Line, p.Column)
	}
	return place + ": " + p.Message
}

// Status is the problem as the status of a Policy object holds it.
func (p Problem) Status() v1alpha1.PolicyError {
	if p.Library != "" {
		// The place is not one of the policy's own text.
		message := fmt.Sprintf("library %s, line %d: %s", p.Library, p.Line, p.Message)
		return v1alpha1.PolicyError{Message: truncateText(message, 4096)}
	}
	return v1alpha1.PolicyError{Line: int32(p.Line), Column: int32(p.Column), Message: truncateText(p.Message, 4096)}
}

// policyFile is the file name under which every policy's module is compiled; any
// other is a library's.
const policyFile = "policy"

// problemAt returns a problem at a place of a policy or of a library. Whose policy it
// is, is filled in by [named]: policies of the same text are compiled once.
func problemAt(location *ast.Location, format string, args ...any) Problem {
	problem := Problem{Message: fmt.Sprintf(format, args...)}
	if location == nil {
		return problem
	}
	// At the end of a text OPA counts columns from 0.
	problem.Line, problem.Column = location.Row, max(location.Col, 1)
	if location.File != policyFile {
		problem.Library = location.File
	}
	return problem
}

// withPolicyName returns the problems as those of one policy.
func withPolicyName(policy string, problems []Problem) []Problem {
	own := slices.Clone(problems)
	for i := range own {
		own[i].Policy = policy
	}
	return own
}

// problemsFromOPA returns the problems of an error of OPA's parser or compiler.
func problemsFromOPA(err error) []Problem {
	var (
		list ast.Errors
		one  *ast.Error
	)
	if errors.As(err, &one) {
		list = ast.Errors{one}
	} else if !errors.As(err, &list) {
		return []Problem{{Message: err.Error()}}
	}
	problems := make([]Problem, 0, len(list))
	for _, one := range list {
		if name, ok := strings.CutPrefix(one.Message, "undefined function "); ok {
			// In a policy's own module these are found before, all of them.
			if _, ok := forbiddenReason(name); ok && one.Location != nil && one.Location.File == policyFile {
				continue
			}
		}
		problems = append(problems, problemAt(one.Location, "%s", opaMessage(one)))
	}
	return problems
}

func opaMessage(err *ast.Error) string {
	message := []string{err.Message}
	// A parser's details are the line and a caret under it: no more than the place.
	if err.Details != nil && err.Code != ast.ParseErr {
		for _, line := range err.Details.Lines() {
			if line = strings.TrimSpace(line); line != "" {
				message = append(message, line)
			}
		}
	}
	return strings.Join(message, "; ")
}

// sortProblems sorts problems by their place, drops repetitions and caps their number.
func sortProblems(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Library, b.Library), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	problems = slices.Compact(problems)
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems:maxProblems],
			Problem{Message: fmt.Sprintf("and %d more problems", more)})
	}
	return problems
}
