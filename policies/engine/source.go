// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
)

// maxSource is the largest module, in bytes; that of the Policy kind's schema.
const maxSource = 256 << 10

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
		writePart(h, part)
	}
	writePart(h, strconv.FormatBool(s.BuiltIn))
	return digest(h.Sum(nil))
}

// writePart writes a text with its length, so that no two lists of texts look
// alike.
func writePart(h hash.Hash, text string) {
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

// checked returns the parameters' term, and what is wrong with everything but
// the module.
func (s Source) checked() (*ast.Term, []Problem) {
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
	parameters, err := Decode(s.Parameters)
	if err != nil {
		complain("parameters: %v", err)
	} else if _, ok := parameters.value().(map[string]any); !ok {
		complain("parameters must be a JSON object")
	}
	return parameters.term(), problems
}
