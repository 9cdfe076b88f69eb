// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/parameters"
)

// told is all that an engine is told, and what it is not told.
type told struct {
	sources []engine.Source
	// ignored are the objects that give nothing, as reports.
	ignored []engine.Report
	// warnings are of built-in policies, by name.
	warnings map[string][]engine.Problem
	// set are the parameters of mirrors that are in force, by name.
	set map[string]parameterSet
	// unset are the mirrors whose parameters are wrong, by name.
	unset map[string]refusal
}

// parameterSet is what the mirror of a built-in policy sets of its parameters, and
// the mirror's generation.
type parameterSet struct {
	raw        []byte
	generation int64
}

// refusal is why the parameters of a mirror, of a generation, are not in force.
type refusal struct {
	generation int64
	faults     []string
}

// tell decides what Policy objects may say beside what is built in. before are the
// parameters that were in force: they stay where those that came are wrong.
func tell(builtIn []engine.Source, objects []v1alpha1.Policy, before map[string]parameterSet) told {
	t := told{
		sources: slices.Clone(builtIn), warnings: make(map[string][]engine.Problem),
		set: make(map[string]parameterSet), unset: make(map[string]refusal),
	}
	places := make(map[string]int, len(builtIn))
	for place, source := range builtIn {
		places[source.Name] = place
	}
	for i := range objects {
		object := &objects[i]
		place, taken := places[object.Name]
		labelled := object.Labels[v1alpha1.LabelBuiltIn] == "true"
		switch {
		case taken && labelled:
			t.adopt(&t.sources[place], object, before[object.Name])
		case taken:
			t.warn(object.Name, "the Policy object of this name is ignored, since it is not Sluice's mirror of the built-in policy; choose another name")
		case labelled:
			t.ignored = append(t.ignored, ignored(object))
		default:
			t.sources = append(t.sources, engine.FromPolicy(object))
		}
	}
	return t
}

// adopt takes a built-in policy's parameters from its mirror. Where one of them is
// wrong none is taken, since they may belong together: a wrong one would refuse
// every pod.
func (t *told) adopt(source *engine.Source, mirror *v1alpha1.Policy, before parameterSet) {
	now := parameterSet{generation: mirror.Generation}
	if mirror.Spec.Parameters != nil {
		now.raw = mirror.Spec.Parameters.Raw
	}
	if faults := wrong(source, now.raw); len(faults) > 0 {
		t.unset[source.Name] = refusal{now.generation, faults}
		// What was right for another version of the program may no longer be.
		if now = before; len(wrong(source, now.raw)) > 0 {
			now = parameterSet{}
		}
	}
	merged, err := joined(source.Parameters, now.raw)
	if err != nil {
		return // nothing is wrong with what was checked
	}
	source.Parameters, source.Generation = merged, now.generation
	t.set[source.Name] = now
}

// wrong says what keeps a mirror's parameters from being in force.
func wrong(source *engine.Source, set []byte) []string {
	if len(set) == 0 {
		return nil
	}
	// As strict as the engine, which is stricter than the API server.
	if _, err := engine.Decode(set); err != nil {
		return []string{fmt.Sprintf("%s: %v", parameters.Field, err)}
	}
	return parameters.Check(source.Name, set)
}

// joined puts the team's parameters over those that are built in, field by field
// of the outermost object.
func joined(builtIn, team []byte) ([]byte, error) {
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

func (t *told) warn(name, format string, args ...any) {
	t.warnings[name] = append(t.warnings[name], engine.Problem{Policy: name, Message: fmt.Sprintf(format, args...)})
}

// ignored is the report of an object that says it is built in and is not.
func ignored(object *v1alpha1.Policy) engine.Report {
	return engine.Report{
		Name: object.Name, Generation: object.Generation,
		Problems: []engine.Problem{{
			Policy:  object.Name,
			Message: fmt.Sprintf("the label %s is Sluice's, and no built-in policy has this name; take the label away", v1alpha1.LabelBuiltIn),
		}},
	}
}

// reports joins what the engine says with what it was not told, sorted by name.
func (t *told) reports(fromEngine []engine.Report) []engine.Report {
	all := append(slices.Clone(fromEngine), t.ignored...)
	for i := range all {
		name := all[i].Name
		all[i].Warnings = append(slices.Clone(t.warnings[name]), all[i].Warnings...)
		if refused, ok := t.unset[name]; ok {
			all[i].Generation = refused.generation
			all[i].Problems = slices.Clone(all[i].Problems)
			for _, fault := range refused.faults {
				all[i].Problems = append(all[i].Problems, engine.Problem{Policy: name, Message: fault})
			}
		}
	}
	slices.SortFunc(all, func(a, b engine.Report) int { return strings.Compare(a.Name, b.Name) })
	return all
}
