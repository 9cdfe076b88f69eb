// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/merge"
)

// exemptionProblems returns why the exemptions of a source are not allowed.
func (s Source) exemptionProblems() []Problem {
	if len(s.Exemptions) == 0 {
		return nil
	}
	var problems []Problem
	switch {
	case s.BuiltIn:
		problems = append(problems, Problem{Message: "spec.exemptions is set, which a built-in policy does not have"})
	case s.Replaces != "":
		problems = append(problems, Problem{
			Message: "spec.exemptions: a policy that replaces a built-in one has no exemptions: allow the objects in its rules",
		})
	}
	for i, exemption := range s.Exemptions {
		path := fmt.Sprintf("spec.exemptions[%d]", i)
		switch {
		case len(exemption.Projects) == 0:
			problems = append(problems, Problem{Message: path + ".projects is empty; name the projects"})
		case strings.TrimSpace(exemption.Reason) == "":
			problems = append(problems, Problem{Message: path + ".reason is empty; write why the objects are exempted"})
		case exemption.Until.IsZero():
			problems = append(problems, Problem{Message: path + ".until is not set; write when the exemption ends, such as 2026-12-31T23:00:00Z"})
		}
	}
	return problems
}

// exemption returns the exemption of the policy that holds for the object of an input; nil if there is none.
func (p *policy) exemption(in *Input) *v1alpha1.PolicyExemption {
	var found *v1alpha1.PolicyExemption
	for i := range p.source.Exemptions {
		exemption := &p.source.Exemptions[i]
		if !in.Now.Before(exemption.Until.Time) || !slices.Contains(exemption.Projects, in.Subject.Project) ||
			len(exemption.Names) > 0 && !matchesAny(exemption.Names, in.objectName()) {
			continue
		}
		if found == nil || found.Until.Before(&exemption.Until) {
			found = exemption
		}
	}
	return found
}

// objectName returns the name of the object, or what its name will begin with: its generateName, or for a template without
// either the name of its workload.
func (in *Input) objectName() string {
	metadata := in.object().Field("metadata")
	for _, field := range []string{"name", "generateName"} {
		if name, _ := metadata.Field(field).Value().(string); name != "" {
			return name
		}
	}
	if name, _ := in.Review.Field("name").Value().(string); name != "" && in.Template {
		return name + "-"
	}
	return ""
}

// matchesAny reports whether a name matches one of the patterns, in which * stands for any characters.
func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matchesPattern(pattern, name) })
}

func matchesPattern(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(name, part)
		if !found {
			return false
		}
		name = after
	}
	return strings.HasSuffix(name, parts[len(parts)-1])
}

// exemptedFindings returns the denials of an exempted object as warnings.
func exemptedFindings(denials []merge.Finding, exemption *v1alpha1.PolicyExemption) []merge.Finding {
	warnings := slices.Clone(denials)
	for i := range warnings {
		warnings[i].Message = fmt.Sprintf("exempted until %s (%s): %s",
			exemption.Until.UTC().Format(time.RFC3339), singleLine(exemption.Reason), warnings[i].Message)
	}
	return warnings
}

// Exempts reports whether a policy that matches a subject has an exemption for its project, and whether one of these is
// limited to names. The result for an object then depends on the time, and on the object's name.
func (s *Set) Exempts(subject Subject) (exempts, byName bool) {
	for _, m := range s.admission.match(subject) {
		for i := range m.source.Exemptions {
			if exemption := &m.source.Exemptions[i]; slices.Contains(exemption.Projects, subject.Project) {
				exempts, byName = true, byName || len(exemption.Names) > 0
			}
		}
	}
	return exempts, byName
}
