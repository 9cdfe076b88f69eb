// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
)

// ErrUnusable reports that no version of the policy can be evaluated: the present one has
// problems, and no earlier one is known that had none.
var ErrUnusable = errors.New("no version of it is in force")

// buildLastGood compiles the last good version of a policy.
func (u *updater) buildLastGood(source Source) (*policy, []Problem) {
	problems := source.Rejections
	var built *policy
	if len(problems) == 0 {
		built, problems = u.buildPolicy(source)
	}
	if built == nil && len(source.Libraries) > 0 && len(source.Rejections) == 0 {
		// The libraries that it had do not exist any more, or have changed.
		chosen := make(map[string]*teamLibrary, len(source.Libraries))
		for _, library := range source.Libraries {
			chosen[library.Name] = newTeamLibrary(library)
		}
		imported, missing := u.importsOf(source.Rego, u.newLibraryWorld(chosen))
		built, problems = u.buildWith(source, imported, missing)
	}
	explained := make([]Problem, len(problems))
	for i, problem := range problems {
		// The place is in the earlier source.
		explained[i] = Problem{Message: fmt.Sprintf("generation %d, which was in force, no longer compiles: %s", source.Generation, problem.Message)}
	}
	return built, explained
}

// mustRefuse reports whether the policy refuses what it matches while it has no good version: in
// Deny, and in Warn if it has rules that change objects. Without these an object may do what
// they prevent.
func (s Source) mustRefuse() bool {
	switch {
	case s.BuiltIn, s.Enforcement == v1alpha1.EnforcementDryRun:
		return false // the engine is not ready without its built-in policies
	case s.Enforcement == v1alpha1.EnforcementWarn:
		return s.rules()&mutatingRules != 0
	}
	return true
}

// rules returns the known rules of a source, as far as it can be parsed.
func (s Source) rules() ruleSet {
	if len(s.Rejections) > 0 || s.IsLibrary() {
		return 0
	}
	p, _ := parseModule(s.Rego)
	return p.rules
}

// newUnusable returns a policy that fails for every object that the source matches.
func (u *updater) newUnusable(source Source, problem Problem) *policy {
	sum := source.digest()
	p := &policy{
		source: source, digest: sha256.Sum256(append([]byte("unusable:"), sum[:]...)),
		module: &module{rules: source.rules()}, parameters: ast.InternedEmptyObject, unusable: fmt.Errorf("%w: %w", ErrUnusable, problem),
	}
	if len(u.validateReplacement(source)) > 0 {
		p.source.Replaces = ""
	}
	p.source.Rego, p.source.LastGood = "", nil
	return p
}
