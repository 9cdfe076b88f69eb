// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
)

// irreplaceablePolicies are the built-in policies that accept parameters only: without
// them objects have no project, or are not counted.
var irreplaceablePolicies = []string{"core.project", "core.quota"}

// Report is the result of an Update for one policy.
type Report struct {
	// Name is the policy's name.
	Name string
	// Generation is the generation of the source.
	Generation int64
	// Problems are why the source is not active; none if it is.
	Problems []Problem
	// Warnings are probable errors, for the author.
	Warnings []Problem
	// Active reports whether a version of the policy is active: this one, or, if there
	// are problems, the last good one.
	Active bool
	// Refusing reports whether the policy has no good version, and refuses the objects that it
	// matches. Otherwise a policy that is not active has no effect.
	Refusing bool
	// EnforcedGeneration is the generation of the active version.
	EnforcedGeneration int64
	// Reads is the data that the source reads; nil if it reads none, or is not active.
	Reads *DataReads
	// Missing is the data that the active version reads and that does not exist, in sentences. The store
	// sets it. Until the data exists, the policy fails.
	Missing []string
}

// compilation is the result of compiling a text, shared by all policies with that text.
type compilation struct {
	module   *module
	problems []Problem
}

// Compile compiles policies without an Engine that keeps earlier versions: for tools, and
// to validate a policy before it is accepted. The Set omits policies that do not compile.
func Compile(sources []Source, options Options) (*Set, []Report, error) {
	e, err := New(options)
	if err != nil {
		return nil, nil, err
	}
	e.omitUnusable = true
	reports := e.Update(sources)
	return e.current.Load(), reports, nil
}

// Update replaces all active policies at once. Policies without a source become inactive.
// Only changed sources are compiled. If a source does not compile, the last good version
// of that name stays active with its match and parameters; after a restart it is that of the
// source's LastGood. If there is none, a policy in Deny, or in Warn with rules that change
// objects, refuses what it matches. Reports are sorted by name.
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
	members := slices.Collect(maps.Values(u.active))
	if !e.omitUnusable {
		members = append(members, u.unusable...)
	}
	current := newSet(members, e.data, e.options)
	e.former.add(e.current.Swap(current), current)
	return reports
}

// updater holds the state of one Update.
type updater struct {
	engine  *Engine
	builtIn map[string]bool
	modules map[digest]*compilation
	active  map[string]*policy
	// unusable are the policies without a good version that refuse what they match.
	unusable []*policy
}

// updatePolicy activates the policy of one name, or keeps its last good version.
func (u *updater) updatePolicy(name string, candidates []Source) Report {
	report := Report{Name: name, Generation: candidates[0].Generation}
	var problems []Problem
	p := u.engine.active[name]
	source, ok := selectSource(candidates)
	if len(candidates) > 1 {
		problems = append(problems, Problem{Message: fmt.Sprintf("%d policies are named %s; choose another name", len(candidates), name)})
	}
	if ok && len(source.Rejections) > 0 {
		report.Generation = source.Generation
		problems = append(problems, source.Rejections...)
	} else if ok {
		report.Generation = source.Generation
		built, wrong := u.buildPolicy(source)
		problems = append(problems, wrong...)
		if built != nil {
			p = built
			report.Reads = built.module.allReads()
			report.Warnings = withPolicyName(name, append(u.replacementWarnings(source), built.module.warnings...))
		}
	}
	if p == nil && ok && source.LastGood != nil {
		var wrong []Problem
		p, wrong = u.buildLastGood(*source.LastGood)
		problems = append(problems, wrong...)
	}
	report.Problems = withPolicyName(name, problems)
	switch {
	case p != nil:
		u.active[name] = p
		report.Active, report.EnforcedGeneration = true, p.source.Generation
	case ok && source.mustRefuse():
		u.unusable = append(u.unusable, u.newUnusable(source, report.Problems[0]))
		report.Refusing = true
	}
	return report
}

// selectSource returns the source that may use its name: the only one, or the only
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

// buildPolicy compiles a source, or reuses the module of the same text.
func (u *updater) buildPolicy(source Source) (*policy, []Problem) {
	sum := source.digest()
	if unchanged, ok := u.engine.active[source.Name]; ok && unchanged.digest == sum && unchanged.source.Generation == source.Generation {
		u.compileModule(source)
		return unchanged, nil
	}
	parameters, problems := source.validate()
	problems = append(problems, u.validateReplacement(source)...)
	compiled := u.compileModule(source)
	if problems = append(problems, compiled.problems...); len(problems) > 0 {
		return nil, problems
	}
	p := &policy{
		source: source, digest: sum, module: compiled.module, parameters: parameters,
	}
	for kind := range p.caches {
		p.caches[kind] = newResultCache(u.engine.options.CacheEntries)
	}
	p.source.Rego = ""
	return p, nil
}

// compileModule compiles a text, or returns the earlier compilation.
func (u *updater) compileModule(source Source) *compilation {
	key := digest(sha256.Sum256([]byte(source.Rego)))
	compiled := u.modules[key]
	if compiled == nil {
		compiled = u.engine.modules[key]
	}
	if compiled == nil {
		compiled = &compilation{}
		compiled.module, compiled.problems = u.engine.compiler.compile(source.Rego, source.BuiltIn)
	}
	u.modules[key] = compiled
	return compiled
}

// validateReplacement returns why a policy must not replace another.
func (u *updater) validateReplacement(source Source) []Problem {
	switch {
	case source.Replaces == "":
		return nil
	case source.BuiltIn:
		return []Problem{{Message: "a built-in policy cannot replace another"}}
	case slices.Contains(irreplaceablePolicies, source.Replaces):
		return []Problem{{Message: fmt.Sprintf("%s cannot be replaced; set its parameters instead", source.Replaces)}}
	}
	return nil
}

// replacementWarnings warns of a policy that replaces nothing.
func (u *updater) replacementWarnings(source Source) []Problem {
	if source.Replaces == "" || u.builtIn[source.Replaces] {
		return nil
	}
	return []Problem{{Message: fmt.Sprintf("replaces %s, which is not a built-in policy", source.Replaces)}}
}
