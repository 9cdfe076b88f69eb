// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"
)

// maxNamedImporters limits the policies that one message names.
const maxNamedImporters = 20

// report returns the report of a library.
func (c *libraryChoice) report(choice map[string]*teamLibrary, name string) Report {
	desired, chosen := c.desired[name], choice[name]
	report := Report{Name: name, Generation: desired.source.Generation}
	problems := c.updater.world.problems[name]
	if chosen != desired {
		problems = c.reversionProblems(choice, name)
	}
	report.Problems = withPolicyName(name, ownProblems(name, problems))
	if chosen != nil && c.updater.world.canImport(chosen) {
		report.Active, report.EnforcedGeneration = true, chosen.source.Generation
	}
	return report
}

// ownProblems returns problems of which those in the text of the library have a place in its own text.
func ownProblems(name string, problems []Problem) []Problem {
	own := slices.Clone(problems)
	for i := range own {
		if own[i].Library == name {
			own[i].Library = ""
		}
	}
	return own
}

// reversionProblems returns why the present version of a library is not in force, and warns in the reports of the
// policies because of which it is not.
func (c *libraryChoice) reversionProblems(choice map[string]*teamLibrary, name string) []Problem {
	u := c.updater
	inForce, with := u.world, c.world(c.with(choice, name))
	if problems := with.problems[name]; len(problems) > 0 {
		return problems
	}
	var problems []Problem
	add := func(kind, importer string, problem Problem) {
		problem.Policy = importer
		if len(problems) < maxNamedImporters {
			problems = append(problems, Problem{
				Message: fmt.Sprintf("%s %s does not compile with this version: %s", kind, importer, problem.Error()),
			})
		}
		problem.Policy = "it"
		u.warnings[importer] = append(u.warnings[importer], Problem{Message: fmt.Sprintf(
			"%s is not in force, since this one does not compile with it: %s", c.desired[name].version(),
			strings.TrimPrefix(problem.Error(), "it:"),
		)})
	}
	for _, library := range with.libraries {
		other := library.source.Name
		if other != name && len(with.problems[other]) > 0 && len(inForce.problems[other]) == 0 {
			add("library", other, ownProblems(other, with.problems[other])[0])
		}
	}
	for i := range c.importers {
		if one := &c.importers[i]; c.compiles(one, inForce) && !c.compiles(one, with) {
			add("policy", one.name, u.problemsIn(with, one.versions[0])[0])
		}
	}
	if len(problems) == 0 {
		problems = []Problem{{
			Message: "it compiles only with a version of another library that is not in force; see the status of the other libraries",
		}}
	}
	return problems
}

// Libraries returns the libraries of teams that are in force, sorted by name.
func (e *Engine) Libraries() []Source {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.world == nil {
		return nil
	}
	return librarySources(slices.DeleteFunc(slices.Clone(e.world.libraries), func(l *teamLibrary) bool { return !e.world.canImport(l) }))
}

// librarySources returns the sources of libraries, sorted by name.
func librarySources(libraries []*teamLibrary) []Source {
	sources := make([]Source, len(libraries))
	for i, library := range libraries {
		sources[i] = library.source
	}
	slices.SortFunc(sources, func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
	return sources
}

// Imports returns the libraries with which a policy of the set was compiled, sorted by name.
func (s *Set) Imports(policy string) []Source {
	i, found := s.find(policy)
	if !found {
		return nil
	}
	return librarySources(s.members[i].imports)
}
