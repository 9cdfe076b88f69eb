// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	u := newUpdater(e)
	byName := make(map[string][]Source, len(sources))
	for _, source := range sources {
		byName[source.Name] = append(byName[source.Name], source)
		if source.BuiltIn {
			u.builtIn[source.Name] = true
		}
	}
	libraries, single := separateLibraries(byName)
	reports := u.chooseLibraries(libraries, single)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		reports = append(reports, u.updatePolicy(name, byName[name]))
	}
	slices.SortFunc(reports, func(a, b Report) int { return strings.Compare(a.Name, b.Name) })
	u.warnOfReversions(reports)
	e.modules, e.active, e.libraries, e.reads, e.world = u.modules, u.active, u.libraries, u.reads, u.world
	members := slices.Collect(maps.Values(u.active))
	if !e.omitUnusable {
		members = append(members, u.unusable...)
	}
	e.current.Store(newSet(members, e.data, e.options))
	return reports
}

// updater holds the state of one Update.
type updater struct {
	engine  *Engine
	builtIn map[string]bool
	modules map[compilationKey]*compilation
	active  map[string]*policy
	// world has the libraries that come into force, and libraries the last good versions by name.
	world     *libraryWorld
	libraries map[string]*teamLibrary
	// reads are the references to libraries, by the digest of the text.
	reads map[digest]moduleReads
	// warnings are about libraries that are not in force because of a policy, by its name.
	warnings map[string][]Problem
	// unusable are the policies without a good version that refuse what they match.
	unusable []*policy
}

func newUpdater(e *Engine) *updater {
	return &updater{
		engine: e, builtIn: make(map[string]bool), modules: make(map[compilationKey]*compilation), active: make(map[string]*policy),
		reads: make(map[digest]moduleReads), warnings: make(map[string][]Problem),
	}
}

// separateLibraries removes the libraries from the sources by name. It returns them, and the policies with a unique name.
func separateLibraries(byName map[string][]Source) ([]Source, map[string]Source) {
	var libraries []Source
	single := make(map[string]Source, len(byName))
	for name, candidates := range byName {
		switch source, ok := selectSource(candidates); {
		case !ok:
		case source.IsLibrary():
			libraries = append(libraries, source)
			delete(byName, name)
		default:
			single[name] = source
		}
	}
	return libraries, single
}

// warnOfReversions adds the warnings about libraries to the reports.
func (u *updater) warnOfReversions(reports []Report) {
	for i := range reports {
		if warnings := u.warnings[reports[i].Name]; len(warnings) > 0 {
			reports[i].Warnings = append(slices.Clip(reports[i].Warnings), withPolicyName(reports[i].Name, warnings)...)
		}
	}
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
	if p != nil && p == u.engine.active[name] {
		p = u.rebuild(p)
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

// rebuild compiles an earlier version of a policy with the libraries that are in force now. If that is impossible, the
// version stays with the libraries that it has.
func (u *updater) rebuild(p *policy) *policy {
	if len(p.imports) == 0 {
		return p
	}
	if built, problems := u.buildPolicy(p.source); len(problems) == 0 {
		return built
	}
	return p
}

// buildPolicy compiles a source, or reuses the module of the same text.
func (u *updater) buildPolicy(source Source) (*policy, []Problem) {
	imported, missing := u.importsOf(source.Rego, u.world)
	return u.buildWith(source, imported, missing)
}

// buildWith compiles a source with the libraries that it imports. missing are problems of its imports.
func (u *updater) buildWith(source Source, imported []*teamLibrary, missing []Problem) (*policy, []Problem) {
	sum := policyDigest(source, imported)
	unchanged, ok := u.engine.active[source.Name]
	if ok && len(missing) == 0 && unchanged.digest == sum && unchanged.source.Generation == source.Generation {
		u.compileModule(source, imported)
		return unchanged, nil
	}
	parameters, problems := source.validate()
	problems = append(append(problems, u.validateReplacement(source)...), missing...)
	if len(missing) > 0 {
		return nil, problems // the compiler would report them again
	}
	compiled := u.compileModule(source, imported)
	if problems = append(problems, compiled.problems...); len(problems) > 0 {
		return nil, problems
	}
	p := &policy{
		source: source, digest: sum, module: compiled.module, parameters: parameters, imports: imported,
	}
	for kind := range p.caches {
		p.caches[kind] = newResultCache(u.engine.options.CacheEntries)
	}
	if p.source.LastGood = nil; len(imported) == 0 {
		p.source.Rego = "" // one with libraries is compiled again with later versions of these
	}
	return p, nil
}

// policyDigest identifies a source with the libraries that it imports.
func policyDigest(source Source, imported []*teamLibrary) digest {
	sum := source.digest()
	if len(imported) == 0 {
		return sum
	}
	return sha256.Sum256(append(sum[:], importDigest(imported)...))
}

// compilationKey identifies what is compiled together.
type compilationKey struct {
	text digest
	// imports identifies the libraries; empty for none.
	imports string
	// isLibrary: the text is that of a library.
	isLibrary bool
}

func textDigest(text string) digest { return sha256.Sum256([]byte(text)) }

// compileModule compiles a text with libraries, or returns the earlier compilation.
func (u *updater) compileModule(source Source, imported []*teamLibrary) *compilation {
	return u.compileOnce(compilationKey{text: textDigest(source.Rego), imports: importDigest(imported)}, func() (*module, []Problem) {
		if source.BuiltIn && len(imported) == 0 {
			return u.engine.compiler.compileBuiltIn(source.Rego)
		}
		return u.engine.compiler.compile(source.Rego, imported)
	})
}

// compileOnce compiles, or returns the earlier compilation of a key, if there is one.
func (u *updater) compileOnce(key compilationKey, compile func() (*module, []Problem)) *compilation {
	compiled := u.modules[key]
	if compiled == nil {
		compiled = u.engine.modules[key]
	}
	if compiled == nil {
		compiled = &compilation{}
		compiled.module, compiled.problems = compile()
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
