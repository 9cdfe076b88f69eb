// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// told is all that an engine is told, and what it is not told.
type told struct {
	sources []engine.Source
	// ignored are the objects that give nothing, as reports.
	ignored []engine.Report
	// warnings are of built-in policies, by name.
	warnings map[string][]engine.Problem
}

// tell decides what Policy objects may say beside what is built in.
func tell(builtIn []engine.Source, objects []v1alpha1.Policy) told {
	t := told{sources: slices.Clone(builtIn), warnings: make(map[string][]engine.Problem)}
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
			if err := adopt(&t.sources[place], object); err != nil {
				t.warn(object.Name, "spec.parameters are ignored: %v", err)
			}
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

// adopt takes a built-in policy's parameters from its mirror. Parameters that no
// policy could read are left where they are: they must not keep the policy from
// being in force.
func adopt(source *engine.Source, mirror *v1alpha1.Policy) error {
	source.Generation = mirror.Generation
	if mirror.Spec.Parameters == nil {
		return nil
	}
	merged, err := joined(source.Parameters, mirror.Spec.Parameters.Raw)
	if err != nil {
		return err
	}
	source.Parameters = merged
	return nil
}

// joined puts the team's parameters over those that are built in, field by field
// of the outermost object.
func joined(builtIn, team []byte) ([]byte, error) {
	// As strict as the engine, which is stricter than the API server.
	if _, err := engine.Decode(team); err != nil {
		return nil, err
	}
	if text := bytes.TrimSpace(team); len(text) == 0 || text[0] != '{' {
		return nil, errors.New("they must be a JSON object")
	}
	if len(builtIn) == 0 {
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
		all[i].Warnings = append(slices.Clone(t.warnings[all[i].Name]), all[i].Warnings...)
	}
	slices.SortFunc(all, func(a, b engine.Report) int { return strings.Compare(a.Name, b.Name) })
	return all
}
