// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// desiredSources is all that an engine is told, and what it is not told.
type desiredSources struct {
	sources []engine.Source
	// ignored are the objects that give nothing, as reports.
	ignored []engine.Report
	// warnings are of built-in policies, by name.
	warnings map[string][]engine.Problem
	// parameters are the parameters of mirrors that are in force, by name.
	parameters map[string]parameterSet
	// rejected are the mirrors whose parameters are wrong, by name.
	rejected map[string]rejectedParameters
}

// parameterSet is what the mirror of a built-in policy sets of its parameters, and
// the mirror's generation.
type parameterSet struct {
	raw        []byte
	generation int64
}

// rejectedParameters is why the parameters of a mirror, of a generation, are not in force.
type rejectedParameters struct {
	generation int64
	problems   []string
}

// collectSources decides what Policy objects may say beside what is built in. before are the
// parameters that were in force: they stay where those that came are wrong.
func collectSources(builtIn []engine.Source, objects []v1alpha1.Policy, before map[string]parameterSet) desiredSources {
	t := desiredSources{
		sources: slices.Clone(builtIn), warnings: make(map[string][]engine.Problem),
		parameters: make(map[string]parameterSet), rejected: make(map[string]rejectedParameters),
	}
	places := make(map[string]int, len(builtIn))
	for place, source := range builtIn {
		places[source.Name] = place
	}
	for i := range objects {
		object := &objects[i]
		place, taken := places[object.Name]
		labeled := object.Labels[v1alpha1.LabelBuiltIn] == "true"
		switch {
		case taken && labeled:
			t.adoptParameters(&t.sources[place], object, before[object.Name])
		case taken:
			t.warn(object.Name, "the Policy object of this name is ignored, since it is not Sluice's mirror of the built-in policy; choose another name")
		case labeled:
			t.ignored = append(t.ignored, ignoredReport(object))
		default:
			t.sources = append(t.sources, engine.FromPolicy(object))
		}
	}
	return t
}

// adoptParameters takes a built-in policy's parameters from its mirror. Where one of them is
// wrong none is taken, since they may belong together: a wrong one would refuse
// every pod.
func (t *desiredSources) adoptParameters(source *engine.Source, mirror *v1alpha1.Policy, before parameterSet) {
	now := parameterSet{generation: mirror.Generation}
	if mirror.Spec.Parameters != nil {
		now.raw = mirror.Spec.Parameters.Raw
	}
	if faults := validateMirror(source, now.raw); len(faults) > 0 {
		t.rejected[source.Name] = rejectedParameters{now.generation, faults}
		// What was right for another version of the program may no longer be.
		if now = before; len(validateMirror(source, now.raw)) > 0 {
			now = parameterSet{}
		}
	}
	merged, err := mergeParameters(source.Parameters, now.raw)
	if err != nil {
		return // nothing is wrong with what was checked
	}
	source.Parameters, source.Generation = merged, now.generation
	t.parameters[source.Name] = now
}

// validateMirror says what keeps a mirror's parameters from being in force.
func validateMirror(source *engine.Source, set []byte) []string {
	if len(set) == 0 {
		return nil
	}
	// As strict as the engine, which is stricter than the API server.
	if _, err := document.Decode(set); err != nil {
		return []string{fmt.Sprintf("%s: %v", policies.ParametersField, err)}
	}
	return policies.ValidateParameters(source.Name, set)
}

// mergeParameters puts the team's parameters over those that are built in, field by field
// of the outermost object.
func mergeParameters(builtIn, team []byte) ([]byte, error) {
	switch {
	case len(team) == 0:
		return builtIn, nil
	case len(builtIn) == 0:
		return team, nil
	}
	fields := make(map[string]json.RawMessage)
	for _, text := range [][]byte{builtIn, team} {
		if err := json.Unmarshal(text, &fields); err != nil {
			return nil, err
		}
	}
	return json.Marshal(fields)
}

func (t *desiredSources) warn(name, format string, args ...any) {
	t.warnings[name] = append(t.warnings[name], engine.Problem{Policy: name, Message: fmt.Sprintf(format, args...)})
}

// ignoredReport is the report of an object that says it is built in and is not.
func ignoredReport(object *v1alpha1.Policy) engine.Report {
	return engine.Report{
		Name: object.Name, Generation: object.Generation,
		Problems: []engine.Problem{{
			Policy:  object.Name,
			Message: fmt.Sprintf("the label %s is Sluice's, and no built-in policy has this name; take the label away", v1alpha1.LabelBuiltIn),
		}},
	}
}

// reports joins what the engine says with what it was not told, sorted by name.
func (t *desiredSources) reports(fromEngine []engine.Report) []engine.Report {
	all := append(slices.Clone(fromEngine), t.ignored...)
	for i := range all {
		name := all[i].Name
		all[i].Warnings = append(slices.Clone(t.warnings[name]), all[i].Warnings...)
		if refused, ok := t.rejected[name]; ok {
			all[i].Generation = refused.generation
			all[i].Problems = slices.Clone(all[i].Problems)
			for _, fault := range refused.problems {
				all[i].Problems = append(all[i].Problems, engine.Problem{Policy: name, Message: fault})
			}
		}
	}
	slices.SortFunc(all, func(a, b engine.Report) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Replacement is a policy in force that is asked in the place of a built-in one.
type Replacement struct {
	// Policy is its name, Replaces that of the built-in one.
	Policy, Replaces string
	// Departments and Projects are for whose pods; all, where both are empty.
	Departments, Projects []string
}

// IsUnscoped tells whether the built-in policy is asked about nobody's pods.
func (s Replacement) IsUnscoped() bool { return len(s.Departments)+len(s.Projects) == 0 }

// Replacements are the policies that stand in the place of a built-in one in the last
// update, sorted by name.
func (k *Store) Replacements(builtIn string) []Replacement {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found []Replacement
	for _, s := range k.replacements {
		if s.Replaces == builtIn {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b Replacement) int { return strings.Compare(a.Policy, b.Policy) })
	return found
}

// activeReplacements are those of an update, by name. Of a policy whose present source is
// not in force, it is what it was before.
func (t *desiredSources) activeReplacements(reports []engine.Report, before map[string]Replacement) map[string]Replacement {
	builtIn, teams := make(map[string]v1alpha1.PolicyMatch), make(map[string]engine.Source)
	for _, source := range t.sources {
		if source.BuiltIn {
			builtIn[source.Name] = source.Match
		} else {
			teams[source.Name] = source
		}
	}
	now := make(map[string]Replacement)
	for _, report := range reports {
		source, ok := teams[report.Name]
		_, is := builtIn[report.Name]
		switch {
		case !ok || is || !report.Active:
		case len(report.Problems) > 0:
			if old, was := before[report.Name]; was {
				now[report.Name] = old
			}
		case source.Enforcement != v1alpha1.EnforcementDryRun && matchesOverlap(source.Match, builtIn[source.Replaces]):
			if _, exists := builtIn[source.Replaces]; exists {
				now[report.Name] = Replacement{report.Name, source.Replaces, source.Match.Departments, source.Match.Projects}
			}
		}
	}
	return now
}

// matchesOverlap tells whether two policies may be asked about one object, whosever it is.
func matchesOverlap(a, b v1alpha1.PolicyMatch) bool {
	return listsOverlap(a.Operations, b.Operations, func(x, y v1alpha1.PolicyOperation) bool { return x == y }) &&
		listsOverlap(a.Kinds, b.Kinds, func(x, y string) bool {
			return x == y || strings.HasPrefix(x, y+".") || strings.HasPrefix(y, x+".")
		})
}

// listsOverlap tells whether two lists, of which an empty one has everything, have
// something in common.
func listsOverlap[T any](a, b []T, same func(T, T) bool) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(x T) bool {
		return slices.ContainsFunc(b, func(y T) bool { return same(x, y) })
	})
}
