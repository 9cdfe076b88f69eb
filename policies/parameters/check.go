// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package parameters

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Field is where the parameters stand in a Policy object: what [Check] says begins
// with it.
const Field = "spec.parameters"

// longest is how much of a value is shown, in bytes.
const longest = 100

// Check says what is wrong with what is set of a policy's parameters, sorted by
// name: the parameter, its value and what is allowed. Nothing means that all are
// right; those that are not set are.
func Check(policy string, set []byte) []string {
	fields, err := decoded(set)
	if err != nil || fields == nil {
		return []string{fmt.Sprintf("%s: Invalid value: %s: must be a JSON object", Field, shown(json.RawMessage(set)))}
	}
	known := make(map[string]Parameter, len(table[policy]))
	for _, parameter := range table[policy] {
		known[parameter.Name] = parameter
	}
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		parameter, ok := known[name]
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("%s.%s: Invalid value: %s: there is no such parameter; %s", Field, name, shown(fields[name]), offer(policy)))
		case !parameter.Kind.fits(fields[name]):
			faults = append(faults, fmt.Sprintf("%s.%s: Invalid value: %s: must be %s", Field, name, shown(fields[name]), parameter.Kind.Allowed))
		}
	}
	return faults
}

// offer says which parameters a policy takes.
func offer(policy string) string {
	var all []string
	for _, parameter := range table[policy] {
		all = append(all, parameter.Name)
	}
	if len(all) == 0 {
		return policy + " takes none"
	}
	return policy + " takes " + strings.Join(all, ", ")
}

// shown is a value as JSON, its beginning where it is long.
func shown(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "not JSON"
	}
	if len(text) > longest {
		return strings.ToValidUTF8(string(text[:longest]), "") + "..."
	}
	return string(text)
}
