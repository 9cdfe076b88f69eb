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

// desiredSources are the sources of an engine, and the objects and parameters that it does not get.
type desiredSources struct {
	sources []engine.Source
	// ignored are the reports of ignored objects.
	ignored []engine.Report
	// warnings are warnings about built-in policies, by name.
	warnings map[string][]engine.Problem
	// parameters are the active parameters of mirrors, by name.
	parameters map[string]parameterSet
	// rejected are the invalid parameters of mirrors, by name.
	rejected map[string]rejectedParameters
}

// parameterSet has the parameters of a mirror, and the mirror's generation.
type parameterSet struct {
	raw        []byte
	generation int64
}

// rejectedParameters has the reasons why the parameters of a mirror are not in force.
type rejectedParameters struct {
	generation int64
	problems   []string
}

// collectSources combines the built-in policies with Policy objects. before are the last active parameters, which
// replace invalid ones; where it has none, those of lastGood do. lastGood are the last good sources of the cluster.
func collectSources(
	builtIn []engine.Source, objects []v1alpha1.Policy, before map[string]parameterSet, lastGood map[string]engine.Source,
) desiredSources {
	d := desiredSources{
		sources: slices.Clone(builtIn), warnings: make(map[string][]engine.Problem),
		parameters: make(map[string]parameterSet), rejected: make(map[string]rejectedParameters),
	}
	indexes := make(map[string]int, len(builtIn))
	for index, source := range builtIn {
		indexes[source.Name] = index
	}
	for i := range objects {
		object := &objects[i]
		index, isBuiltIn := indexes[object.Name]
		labeled := object.Labels[v1alpha1.LabelBuiltIn] == "true"
		switch {
		case isBuiltIn && labeled:
			last, ok := before[object.Name]
			if kept, isKept := lastGood[object.Name]; !ok && isKept {
				last = parameterSet{kept.Parameters, kept.Generation}
			}
			d.adoptParameters(&d.sources[index], object, last)
		case isBuiltIn:
			d.warn(object.Name, "the Policy object of this name is ignored, "+
				"since it is not Sluice's mirror of the built-in policy; choose another name")
		case labeled:
			d.ignored = append(d.ignored, ignoredReport(object))
		default:
			source := engine.FromPolicy(object)
			if kept, ok := lastGood[object.Name]; ok && (kept.Digest() != source.Digest() || len(kept.Libraries) > 0) {
				source.LastGood = &kept
			}
			d.sources = append(d.sources, source)
		}
	}
	return d
}

// Sources returns the built-in policies with the parameters of their mirrors, and those of the other Policy objects.
func Sources(builtIn []engine.Source, objects []v1alpha1.Policy) []engine.Source {
	return collectSources(builtIn, objects, nil, nil).sources
}

// adoptParameters sets a built-in policy's parameters from its mirror. If one is invalid it rejects all of them, since
// they can depend on each other, and an invalid one would deny every pod.
func (d *desiredSources) adoptParameters(source *engine.Source, mirror *v1alpha1.Policy, before parameterSet) {
	parameters := parameterSet{generation: mirror.Generation}
	if mirror.Spec.Parameters != nil {
		parameters.raw = mirror.Spec.Parameters.Raw
	}
	if faults := validateMirror(source, parameters.raw); len(faults) > 0 {
		d.rejected[source.Name] = rejectedParameters{parameters.generation, faults}
		// The last parameters can be invalid for a new version of the program.
		if parameters = before; len(validateMirror(source, parameters.raw)) > 0 {
			parameters = parameterSet{}
		}
	}
	merged, err := mergeParameters(source.Parameters, parameters.raw)
	if err != nil {
		return // validated parameters always merge
	}
	source.Parameters, source.Generation = merged, parameters.generation
	d.parameters[source.Name] = parameters
}

// validateMirror returns the errors of a mirror's parameters.
func validateMirror(source *engine.Source, parameters []byte) []string {
	if len(parameters) == 0 {
		return nil
	}
	// The engine's decoder is stricter than the API server's.
	if _, err := document.Decode(parameters); err != nil {
		return []string{fmt.Sprintf("%s: %v", policies.ParametersField, err)}
	}
	return policies.ValidateParameters(source.Name, parameters)
}

// mergeParameters overrides the built-in parameters by those of the team, per top-level field.
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

func (d *desiredSources) warn(name, format string, args ...any) {
	d.warnings[name] = append(d.warnings[name], engine.Problem{Policy: name, Message: fmt.Sprintf(format, args...)})
}

// ignoredReport returns the report of an object with the label of a mirror, but without a built-in policy.
func ignoredReport(object *v1alpha1.Policy) engine.Report {
	return engine.Report{
		Name: object.Name, Generation: object.Generation,
		Problems: []engine.Problem{{
			Policy:  object.Name,
			Message: fmt.Sprintf("the label %s is Sluice's, and no built-in policy has this name; remove the label", v1alpha1.LabelBuiltIn),
		}},
	}
}

// reports combines the engine's reports with those of ignored objects and rejected parameters, sorted by name.
func (d *desiredSources) reports(fromEngine []engine.Report) []engine.Report {
	all := append(slices.Clone(fromEngine), d.ignored...)
	for i := range all {
		name := all[i].Name
		all[i].Warnings = append(slices.Clone(d.warnings[name]), all[i].Warnings...)
		if rejected, ok := d.rejected[name]; ok {
			all[i].Generation = rejected.generation
			all[i].Problems = slices.Clone(all[i].Problems)
			for _, fault := range rejected.problems {
				all[i].Problems = append(all[i].Problems, engine.Problem{Policy: name, Message: fault})
			}
		}
	}
	slices.SortFunc(all, func(a, b engine.Report) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Replacement is an active policy that replaces a built-in one.
type Replacement struct {
	// Policy is the name of the policy, and Replaces the name of the built-in one.
	Policy, Replaces string
	// Departments and Projects are those of the policy's match; empty means all.
	Departments, Projects []string
	// Exclude has those for which the built-in policy is evaluated nevertheless.
	Exclude v1alpha1.PolicyExclusion
}

// IsUnscoped reports whether the replacement applies to all pods.
func (r Replacement) IsUnscoped() bool {
	return len(r.Departments)+len(r.Projects)+len(r.Exclude.Departments)+len(r.Exclude.Projects) == 0
}

// Replacements returns the policies that replace a built-in one since the last update, sorted by name.
func (s *Store) Replacements(builtIn string) []Replacement {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Replacement
	for _, replacement := range s.replacements {
		if replacement.Replaces == builtIn {
			found = append(found, replacement)
		}
	}
	slices.SortFunc(found, func(a, b Replacement) int { return strings.Compare(a.Policy, b.Policy) })
	return found
}

// activeReplacements returns the replacements of an update, by name. A policy whose current source has problems keeps
// its old replacement.
func (d *desiredSources) activeReplacements(reports []engine.Report, before map[string]Replacement) map[string]Replacement {
	builtIn, teams := make(map[string]v1alpha1.PolicyMatch), make(map[string]engine.Source)
	for _, source := range d.sources {
		if source.BuiltIn {
			builtIn[source.Name] = source.Match
		} else {
			teams[source.Name] = source
		}
	}
	active := make(map[string]Replacement)
	for _, report := range reports {
		source, ok := teams[report.Name]
		_, isBuiltIn := builtIn[report.Name]
		switch {
		case !ok || isBuiltIn || !report.Active:
		case len(report.Problems) > 0:
			if old, ok := before[report.Name]; ok {
				active[report.Name] = old
			} else if good := source.LastGood; good != nil && good.Generation == report.EnforcedGeneration {
				addReplacement(active, *good, builtIn)
			}
		default:
			addReplacement(active, source, builtIn)
		}
	}
	return active
}

// addReplacement adds the replacement of an active source, if it replaces a built-in policy for some object.
func addReplacement(active map[string]Replacement, source engine.Source, builtIn map[string]v1alpha1.PolicyMatch) {
	match, exists := builtIn[source.Replaces]
	if exists && source.Enforcement != v1alpha1.EnforcementDryRun && matchesOverlap(source.Match, match) {
		active[source.Name] = Replacement{source.Name, source.Replaces, source.Match.Departments, source.Match.Projects, source.Match.Exclude}
	}
}

// matchesOverlap reports whether two policies can match the same object, regardless of its project.
func matchesOverlap(a, b v1alpha1.PolicyMatch) bool {
	return listsOverlap(a.Operations, b.Operations, func(x, y v1alpha1.PolicyOperation) bool { return x == y }) &&
		listsOverlap(a.Kinds, b.Kinds, func(x, y string) bool {
			return x == y || strings.HasPrefix(x, y+".") || strings.HasPrefix(y, x+".")
		})
}

// listsOverlap reports whether two lists have a common element. An empty list contains everything.
func listsOverlap[T any](a, b []T, same func(T, T) bool) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(x T) bool {
		return slices.ContainsFunc(b, func(y T) bool { return same(x, y) })
	})
}
