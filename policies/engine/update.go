// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
)

// irreplaceablePolicies are the built-in policies that take parameters only: without
// them nobody knows whose an object is, or counts it.
var irreplaceablePolicies = []string{"core.project", "core.quota"}

// Report is what became of one policy in an Update.
type Report struct {
	// Name is the policy's name.
	Name string
	// Generation is that of the source.
	Generation int64
	// Problems are why the source is not in force; none means that it is.
	Problems []Problem
	// Warnings are what its author should look at.
	Warnings []Problem
	// Active tells that a version of the policy is: this one, or, where there are
	// problems, the last good one.
	Active bool
	// EnforcedGeneration is the generation of the version in force.
	EnforcedGeneration int64
}

// compilation is what compiling a text gave, once for all policies that share it.
type compilation struct {
	module   *module
	problems []Problem
}

// Compile compiles policies by themselves, without an Engine that keeps earlier
// versions: for tools, and to judge a policy before it is taken. What does not
// compile is not in the Set.
func Compile(sources []Source, options Options) (*Set, []Report, error) {
	e, err := New(options)
	if err != nil {
		return nil, nil, err
	}
	reports := e.Update(sources)
	return e.current.Load(), reports, nil
}

// Update puts policies in force, all at once, in place of those that were: what
// is not among the sources is gone. Only what changed is compiled. A source that
// does not compile leaves the last version of that name that did, with its match
// and parameters, in force; after a restart there is none. Reports are sorted by
// name.
func (e *Engine) Update(sources []Source) []Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	u := &updater{
		engine:  e,
		builtIn: make(map[string]bool),
		modules: make(map[digest]*compilation),
		active:  make(map[string]*policy, len(sources)),
	}
	byName := make(map[string][]Source, len(sources))
	for _, source := range sources {
		byName[source.Name] = append(byName[source.Name], source)
		if source.BuiltIn {
			u.builtIn[source.Name] = true
		}
	}
	reports := make([]Report, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		reports = append(reports, u.updatePolicy(name, byName[name]))
	}
	e.modules, e.active = u.modules, u.active
	e.current.Store(newSet(slices.Collect(maps.Values(u.active)), e.options))
	return reports
}

// updater is one Update at work.
type updater struct {
	engine  *Engine
	builtIn map[string]bool
	modules map[digest]*compilation
	active  map[string]*policy
}

// updatePolicy puts one name's policy in force, or keeps its last good version.
func (u *updater) updatePolicy(name string, candidates []Source) Report {
	report := Report{Name: name, Generation: candidates[0].Generation}
	var problems []Problem
	p := u.engine.active[name]
	source, ok := selectSource(candidates)
	if len(candidates) > 1 {
		problems = append(problems, Problem{Message: fmt.Sprintf("%d policies are named %s; choose another name", len(candidates), name)})
	}
	if ok {
		report.Generation = source.Generation
		built, wrong := u.buildPolicy(source)
		problems = append(problems, wrong...)
		if built != nil {
			p = built
			report.Warnings = withPolicyName(name, append(u.replacementWarnings(source), built.module.warnings...))
		}
	}
	report.Problems = withPolicyName(name, problems)
	if p != nil {
		u.active[name] = p
		report.Active, report.EnforcedGeneration = true, p.source.Generation
	}
	return report
}

// selectSource is the source that has a right to its name: the only one, or the only
// built-in one.
func selectSource(candidates []Source) (Source, bool) {
	if len(candidates) == 1 {
		return candidates[0], true
	}
	builtIn := slices.DeleteFunc(slices.Clone(candidates), func(source Source) bool { return !source.BuiltIn })
	if len(builtIn) == 1 {
		return builtIn[0], true
	}
	return Source{}, false
}

// buildPolicy compiles a source, or takes what was compiled of the same text before.
func (u *updater) buildPolicy(source Source) (*policy, []Problem) {
	sum := source.digest()
	if known, ok := u.engine.active[source.Name]; ok && known.digest == sum && known.source.Generation == source.Generation {
		u.compileModule(source.Rego)
		return known, nil
	}
	parameters, problems := source.validate()
	problems = append(problems, u.validateReplacement(source)...)
	tried := u.compileModule(source.Rego)
	if problems = append(problems, tried.problems...); len(problems) > 0 {
		return nil, problems
	}
	p := &policy{
		source: source, digest: sum, module: tried.module, parameters: parameters,
	}
	for asked := range p.caches {
		p.caches[asked] = newResultCache(u.engine.options.CacheEntries)
	}
	p.source.Rego = ""
	return p, nil
}

// compileModule compiles a text, or remembers what that gave.
func (u *updater) compileModule(text string) *compilation {
	key := digest(sha256.Sum256([]byte(text)))
	tried := u.modules[key]
	if tried == nil {
		tried = u.engine.modules[key]
	}
	if tried == nil {
		tried = &compilation{}
		tried.module, tried.problems = u.engine.compiler.compile(text)
	}
	u.modules[key] = tried
	return tried
}

// validateReplacement says why a policy cannot stand in another's place.
func (u *updater) validateReplacement(source Source) []Problem {
	switch {
	case source.Replaces == "":
		return nil
	case source.BuiltIn:
		return []Problem{{Message: "a built-in policy replaces none"}}
	case slices.Contains(irreplaceablePolicies, source.Replaces):
		return []Problem{{Message: fmt.Sprintf("%s cannot be replaced; give it parameters instead", source.Replaces)}}
	}
	return nil
}

// replacementWarnings warns where a policy stands in nobody's place.
func (u *updater) replacementWarnings(source Source) []Problem {
	if source.Replaces == "" || u.builtIn[source.Replaces] {
		return nil
	}
	return []Problem{{Message: fmt.Sprintf("replaces %s, and there is no such built-in policy", source.Replaces)}}
}
