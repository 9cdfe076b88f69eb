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
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine/document"
)

// maxSourceBytes is the size limit of a module, as in the schema of the Policy kind.
const maxSourceBytes = 256 << 10

// Source is one policy as its author wrote it.
type Source struct {
	// Name is the policy's name: core.gpu, or that of a Policy object. Of sources with
	// the same name, only a built-in one becomes active.
	Name string
	// Rego is the module, at most 256 KiB.
	Rego string
	// Type is Library for a module that policies import; empty means Policy. A library has
	// neither enforcement, match and parameters, nor exemptions.
	Type v1alpha1.PolicyType
	// Created is when the Policy object was created. Of two libraries with one package the
	// older is in force.
	Created time.Time
	// Libraries are set in a LastGood only: the libraries that this version imported.
	Libraries []Source
	// Exemptions admit objects that the policy denies.
	Exemptions []v1alpha1.PolicyExemption
	// Enforcement defaults to Deny.
	Enforcement v1alpha1.Enforcement
	// Match selects the objects for which the policy is evaluated; empty selects all.
	Match v1alpha1.PolicyMatch
	// Parameters is the JSON object that the policy reads as input.parameters; empty is
	// {}.
	Parameters []byte
	// ParametersSchema is the OpenAPI v3 schema of the parameters; empty allows all.
	ParametersSchema []byte
	// Rejections are problems that were found before the compilation. A source with
	// rejections is not compiled.
	Rejections []Problem `json:"-"`
	// LastGood is the last version that was in force, from before the start of this process;
	// nil if there is none. It becomes active if this source does not, and if the engine has
	// no active version of the policy.
	LastGood *Source `json:"-"`
	// BuiltIn reports whether the policy is part of Sluice.
	BuiltIn bool
	// Replaces names a built-in policy that is not evaluated while this one is active. A
	// DryRun policy replaces nothing.
	Replaces string
	// Generation is the generation of the Policy object, for reports.
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
		Type:        policy.Spec.Type,
		Created:     policy.CreationTimestamp.Time,
		Exemptions:  policy.Spec.Exemptions,
	}
	if source.IsLibrary() {
		source.Enforcement = "" // the schema has a default
	}
	if policy.Spec.Parameters != nil {
		source.Parameters = policy.Spec.Parameters.Raw
	}
	if policy.Spec.ParametersSchema != nil {
		source.ParametersSchema = policy.Spec.ParametersSchema.Raw
	}
	return source
}

// IsLibrary reports whether the source is a library of a team.
func (s Source) IsLibrary() bool { return s.Type == v1alpha1.PolicyTypeLibrary && !s.BuiltIn }

// Library is a module of Sluice that policies may import. Its package is data.sluice.lib or below,
// or data.lib, from which Gatekeeper's templates import. Libraries read no data but each
// other.
type Library struct {
	// Name is the file name, for errors.
	Name string
	// Rego is the module.
	Rego string
}

// digest identifies everything in a source but its generation, its creation and the libraries that it imports.
type digest [sha256.Size]byte

// Digest identifies everything in a source but its generation, its creation, its rejections, and the libraries that it
// imports.
func (s Source) Digest() [sha256.Size]byte { return s.digest() }

func (s Source) digest() digest {
	h := sha256.New()
	match, _ := json.Marshal(s.Match) // lists of strings always encode
	for _, part := range []string{
		s.Name, s.Rego, string(s.Enforcement), string(match), string(s.Parameters), string(s.ParametersSchema), s.Replaces,
	} {
		hashText(h, part)
	}
	hashText(h, strconv.FormatBool(s.BuiltIn))
	// Sources without these have the digests of former versions of Sluice.
	if s.IsLibrary() {
		hashText(h, string(s.Type))
	}
	if len(s.Exemptions) > 0 {
		exemptions, _ := json.Marshal(s.Exemptions) // texts and times always encode
		hashText(h, string(exemptions))
	}
	return digest(h.Sum(nil))
}

// hashText writes a text with its length, so that different lists of texts never have the
// same hash.
func hashText(h hash.Hash, text string) {
	fmt.Fprintf(h, "%d:", len(text))
	_, _ = io.WriteString(h, text)
}

// enforcement returns the source's enforcement, Deny if it is empty.
func (s Source) enforcement() v1alpha1.Enforcement {
	if s.Enforcement == "" {
		return v1alpha1.EnforcementDeny
	}
	return s.Enforcement
}

// validate returns the term of the parameters, and the problems of everything but the
// module.
func (s Source) validate() (*ast.Term, []Problem) {
	var problems []Problem
	report := func(format string, args ...any) {
		problems = append(problems, Problem{Message: fmt.Sprintf(format, args...)})
	}
	switch s.enforcement() {
	case v1alpha1.EnforcementDeny, v1alpha1.EnforcementWarn, v1alpha1.EnforcementDryRun:
	default:
		report("enforcement is %q; Deny, Warn and DryRun are allowed", s.Enforcement)
	}
	problems = append(problems, s.exemptionProblems()...)
	schema, err := parseParametersSchema(s.ParametersSchema)
	if err != nil {
		report("%v", err)
	}
	if len(s.Parameters) == 0 {
		return ast.InternedEmptyObject, append(problems, schema.validate(nil)...)
	}
	parameters, err := document.Decode(s.Parameters)
	if err != nil {
		report("%s: %v", parametersPath, err)
	} else if _, ok := parameters.Value().(map[string]any); !ok {
		report("%s must be a JSON object", parametersPath)
	} else {
		problems = append(problems, schema.validate(s.Parameters)...)
	}
	return parameters.Term(), problems
}

// maxProblems is the number of problems to report for one policy.
const maxProblems = 100

// Problem is one error in a policy's source, or a probable error where it is a warning.
// It implements error.
type Problem struct {
	// Policy is the policy's name.
	Policy string
	// Library is the library that has the problem instead of the policy; mostly empty.
	Library string
	// Line and Column start at 1; both are 0 for a problem without a place.
	Line, Column int
	// Message says what is wrong and what to do.
	Message string
	// Kind distinguishes the warnings; empty for problems and other warnings.
	Kind ProblemKind `json:",omitempty"`
}

// ProblemKind is a kind of warning.
type ProblemKind string

// The kinds of warnings.
const (
	// MisspelledRule: the name of a rule is almost one that Sluice knows.
	MisspelledRule ProblemKind = "MisspelledRule"
	// UnknownObjectField: the kinds of Kubernetes do not have a field.
	UnknownObjectField ProblemKind = "UnknownObjectField"
	// ConflictingValue: another policy sets a different value.
	ConflictingValue ProblemKind = "ConflictingValue"
)

// Error returns the problem with its place: name:line:column: message.
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

// Status returns the problem as the status of a Policy object shows it.
func (p Problem) Status() v1alpha1.PolicyError {
	if p.Library != "" {
		// The place is in the library, not in the policy's own text.
		message := fmt.Sprintf("library %s, line %d: %s", p.Library, p.Line, p.Message)
		return v1alpha1.PolicyError{Message: truncateText(message, 4096)}
	}
	return v1alpha1.PolicyError{Line: int32(p.Line), Column: int32(p.Column), Message: truncateText(p.Message, 4096)}
}

// policyFile is the file name of every policy's module. Any other name is a library's.
const policyFile = "policy"

// problemAt returns a problem at a place in a policy or a library. It has no policy name
// yet, since policies with the same text are compiled once; [withPolicyName] sets it.
func problemAt(location *ast.Location, format string, args ...any) Problem {
	problem := Problem{Message: fmt.Sprintf(format, args...)}
	if location == nil {
		return problem
	}
	// At the end of a text OPA counts columns from 0.
	problem.Line, problem.Column = location.Row, max(location.Col, 1)
	if location.File != policyFile {
		problem.Library = strings.TrimPrefix(location.File, teamLibraryFolder)
	}
	return problem
}

// withPolicyName returns copies of the problems that name the policy.
func withPolicyName(policy string, problems []Problem) []Problem {
	named := slices.Clone(problems)
	for i := range named {
		named[i].Policy = policy
	}
	return named
}

// problemsFromOPA converts an error of OPA's parser or compiler.
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
			// forbiddenReferences reports all of these in a policy's own module.
			if _, ok := forbiddenReason(name); ok && one.Location != nil && one.Location.File == policyFile {
				continue
			}
		}
		problems = append(problems, problemAt(one.Location, "%s", opaMessage(one)))
	}
	return problems
}

func opaMessage(err *ast.Error) string {
	if undefined := undefinedFieldMessage(err); undefined != "" {
		return undefined
	}
	message := []string{err.Message}
	// The details of a parse error are the line with a caret: they add nothing to the
	// place.
	if err.Details != nil && err.Code != ast.ParseErr {
		for _, line := range err.Details.Lines() {
			if line = strings.TrimSpace(line); line != "" {
				message = append(message, line)
			}
		}
	}
	return strings.Join(message, "; ")
}

// sortProblems sorts problems by place, removes duplicates and limits their number.
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
