// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
)

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
		return v1alpha1.PolicyError{Message: capText(message, 4096)}
	}
	return v1alpha1.PolicyError{Line: int32(p.Line), Column: int32(p.Column), Message: capText(p.Message, 4096)}
}

// ownFile is the file name under which every policy's module is compiled; any
// other is a library's.
const ownFile = "policy"

// at returns a problem at a place of a policy or of a library. Whose policy it
// is, is filled in by [named]: policies of the same text are compiled once.
func at(location *ast.Location, format string, args ...any) Problem {
	problem := Problem{Message: fmt.Sprintf(format, args...)}
	if location == nil {
		return problem
	}
	// At the end of a text OPA counts columns from 0.
	problem.Line, problem.Column = location.Row, max(location.Col, 1)
	if location.File != ownFile {
		problem.Library = location.File
	}
	return problem
}

// named returns the problems as those of one policy.
func named(policy string, problems []Problem) []Problem {
	own := slices.Clone(problems)
	for i := range own {
		own[i].Policy = policy
	}
	return own
}

// fromOPA returns the problems of an error of OPA's parser or compiler.
func fromOPA(err error) []Problem {
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
			if _, ok := refusal(name); ok && one.Location != nil && one.Location.File == ownFile {
				continue
			}
		}
		problems = append(problems, at(one.Location, "%s", messageOf(one)))
	}
	return problems
}

func messageOf(err *ast.Error) string {
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

// inOrder sorts problems by their place, drops repetitions and caps their number.
func inOrder(problems []Problem) []Problem {
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
