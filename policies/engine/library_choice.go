// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// libraryChoice chooses the version of each library that comes into force: the present one, unless a policy or another
// library that compiles with the versions in force does not compile with it. Then the last good one stays.
type libraryChoice struct {
	updater *updater
	// desired are the present versions, and base those that were in force, if any; by name.
	desired, base map[string]*teamLibrary
	importers     []importer
	// before is the world of base, and worlds are those that were compiled, by choice.
	before *libraryWorld
	worlds map[string]*libraryWorld
}

// importer is a policy that refers to libraries.
type importer struct {
	name string
	// versions are the present version and the one in force, as far as there are.
	versions []Source
}

// moduleReads are the references of a policy to libraries.
type moduleReads struct {
	reads  []libraryRead
	module *ast.Module
}

// readsOf returns the references of a policy's text to the libraries of teams.
func (u *updater) readsOf(text string) moduleReads {
	key := textDigest(text)
	found, ok := u.reads[key]
	if ok {
		return found
	}
	if found, ok = u.engine.reads[key]; !ok {
		found = u.parseReads(text)
	}
	u.reads[key] = found
	return found
}

// parseReads is readsOf for a text that is new.
func (u *updater) parseReads(text string) (found moduleReads) {
	// A policy's text must never end the process. The compiler reports it.
	defer func() { _ = recover() }()
	if !strings.Contains(text, "lib") {
		return found
	}
	p, _ := parseModule(text)
	if p.module == nil {
		return found
	}
	if reads := u.importable(libraryReads(p.module)); len(reads) > 0 {
		found = moduleReads{reads, p.module}
	}
	return found
}

// importsOf returns the libraries that a policy's text imports in a world, also through others.
func (u *updater) importsOf(text string, w *libraryWorld) ([]*teamLibrary, []Problem) {
	of := u.readsOf(text)
	if len(of.reads) == 0 {
		return nil, nil
	}
	direct, problems := w.resolve(of.reads)
	closure := w.closure(direct)
	return closure, append(problems, closureProblems(of.module, closure)...)
}

// problemsIn returns why a policy does not compile in a world.
func (u *updater) problemsIn(w *libraryWorld, source Source) []Problem {
	if len(source.Rejections) > 0 {
		return source.Rejections
	}
	imported, problems := u.importsOf(source.Rego, w)
	if len(problems) == 0 {
		problems = u.compileModule(source, imported).problems
	}
	_, invalid := source.validate()
	return append(slices.Clone(problems), append(invalid, u.validateReplacement(source)...)...)
}

// chooseLibraries sets the world of an update, and returns the reports of the libraries.
func (u *updater) chooseLibraries(libraries []Source, policies map[string]Source) []Report {
	c := &libraryChoice{
		updater: u, desired: make(map[string]*teamLibrary), base: make(map[string]*teamLibrary), worlds: make(map[string]*libraryWorld),
	}
	for _, source := range libraries {
		name, last := source.Name, u.engine.libraries[source.Name]
		if last == nil && source.LastGood != nil && source.LastGood.IsLibrary() {
			last = newTeamLibrary(*source.LastGood)
		}
		c.desired[name] = newTeamLibrary(source)
		if last != nil {
			c.base[name] = last
		}
	}
	c.addImporters(policies)
	choice := c.choose()
	u.world = c.world(choice)
	u.libraries = make(map[string]*teamLibrary, len(choice))
	reports := make([]Report, 0, len(c.desired))
	for _, name := range slices.Sorted(maps.Keys(c.desired)) {
		reports = append(reports, c.report(choice, name))
		if chosen := choice[name]; chosen != nil && u.world.canImport(chosen) {
			u.libraries[name] = chosen
		} else if c.base[name] != nil {
			u.libraries[name] = c.base[name]
		}
	}
	return reports
}

// addImporters adds the policies that refer to libraries, in the order of their names.
func (c *libraryChoice) addImporters(policies map[string]Source) {
	u := c.updater
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		source := policies[name]
		one := importer{name: name, versions: []Source{source}}
		if active := u.engine.active[name]; active != nil && active.source.Rego != "" {
			one.versions = append(one.versions, active.source)
		} else if active == nil && source.LastGood != nil {
			one.versions = append(one.versions, *source.LastGood)
		}
		if slices.ContainsFunc(one.versions, func(s Source) bool { return len(u.readsOf(s.Rego).reads) > 0 }) {
			c.importers = append(c.importers, one)
		}
	}
}

// world compiles a choice once.
func (c *libraryChoice) world(choice map[string]*teamLibrary) *libraryWorld {
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(choice)) {
		fmt.Fprintf(&key, "%s=%t,", name, choice[name] == c.desired[name])
	}
	if c.worlds[key.String()] == nil {
		c.worlds[key.String()] = c.updater.newLibraryWorld(choice)
	}
	return c.worlds[key.String()]
}

// choose returns the versions that come into force.
func (c *libraryChoice) choose() map[string]*teamLibrary {
	choice := maps.Clone(c.desired)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(choice)), func(name string) bool { return c.isNew(choice, name) }) {
		return choice
	}
	c.before = c.updater.newLibraryWorld(c.base)
	for harmful := c.harmful(choice); len(harmful) > 0; harmful = c.harmful(choice) {
		for _, name := range harmful {
			c.revert(choice, name)
		}
	}
	// One that was reverted with others may be harmless alone.
	for _, name := range slices.Sorted(maps.Keys(c.desired)) {
		if choice[name] == c.desired[name] {
			continue
		}
		if with := c.with(choice, name); len(c.harmful(with)) == 0 {
			choice = with
		}
	}
	return choice
}

// isNew reports whether the chosen version of a library is not the one that was in force.
func (c *libraryChoice) isNew(choice map[string]*teamLibrary, name string) bool {
	base, chosen := c.base[name], choice[name]
	return chosen != nil && (base == nil || base.digest != chosen.digest)
}

func (c *libraryChoice) revert(choice map[string]*teamLibrary, name string) {
	if delete(choice, name); c.base[name] != nil {
		choice[name] = c.base[name]
	}
}

// with returns a choice with the present version of a library.
func (c *libraryChoice) with(choice map[string]*teamLibrary, name string) map[string]*teamLibrary {
	with := maps.Clone(choice)
	with[name] = c.desired[name]
	return with
}

// compiles reports whether a version of the policy compiles in a world.
func (c *libraryChoice) compiles(i *importer, w *libraryWorld) bool {
	return slices.ContainsFunc(i.versions, func(s Source) bool { return len(c.updater.problemsIn(w, s)) == 0 })
}

// harmful returns new versions of libraries to revert, since something that compiled does not compile with them.
func (c *libraryChoice) harmful(choice map[string]*teamLibrary) []string {
	w := c.world(choice)
	for _, library := range w.libraries {
		name := library.source.Name
		base := c.base[name]
		switch {
		case w.canImport(library) || base == nil:
		case c.isNew(choice, name):
			return []string{name}
		case c.before.canImport(base):
			imports := func(w *libraryWorld) bool {
				return slices.ContainsFunc(w.libraries, func(l *teamLibrary) bool { return l.source.Name == name && w.canImport(l) })
			}
			if blamed := c.blame(choice, [][]libraryRead{library.reads, base.reads}, imports); len(blamed) > 0 {
				return blamed
			}
		}
	}
	for i := range c.importers {
		one := &c.importers[i]
		if c.compiles(one, w) || !c.compiles(one, c.before) {
			continue
		}
		var reads [][]libraryRead
		for _, version := range one.versions {
			reads = append(reads, c.updater.readsOf(version.Rego).reads)
		}
		if blamed := c.blame(choice, reads, func(w *libraryWorld) bool { return c.compiles(one, w) }); len(blamed) > 0 {
			return blamed
		}
	}
	return nil
}

// blame returns one new version without which a module compiles, or all that it may import.
func (c *libraryChoice) blame(choice map[string]*teamLibrary, reads [][]libraryRead, compiles func(*libraryWorld) bool) []string {
	reached := make(map[string]bool)
	for _, w := range []*libraryWorld{c.world(choice), c.before} {
		for _, read := range reads {
			w.reach(read, reached)
		}
	}
	var suspects []string
	for _, name := range slices.Sorted(maps.Keys(reached)) {
		if !c.isNew(choice, name) {
			continue
		}
		without := maps.Clone(choice)
		c.revert(without, name)
		if compiles(c.world(without)) {
			return []string{name}
		}
		suspects = append(suspects, name)
	}
	return suspects
}

// reach adds the names of the libraries to which references lead, also through others and if they do not compile.
func (w *libraryWorld) reach(reads []libraryRead, reached map[string]bool) {
	for _, read := range reads {
		for _, library := range w.libraries {
			name := library.source.Name
			if library.module != nil && !reached[name] && overlaps(read.path, library.path) {
				reached[name] = true
				w.reach(library.reads, reached)
			}
		}
	}
}
