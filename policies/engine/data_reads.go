// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/policies/engine/dependency"
)

// DataReads are the parts of data.config and data.objects that a policy names. They are known when it
// is compiled.
type DataReads struct {
	// Config are the ConfigMaps and their keys that the policy names.
	Config []ConfigRead `json:"config,omitempty"`
	// AllConfig reports whether the policy reads all ConfigMaps, such as data.config[x] with a variable x.
	AllConfig bool `json:"allConfig,omitempty"`
	// Kinds are the kinds that the policy names, such as Job.batch.
	Kinds []string `json:"kinds,omitempty"`
	// AllKinds reports whether the policy reads the objects of all kinds.
	AllKinds bool `json:"allKinds,omitempty"`
}

// ConfigRead is a ConfigMap that a policy reads, or one of its keys.
type ConfigRead struct {
	Name string `json:"name"`
	// Key is empty if the policy reads the ConfigMap as a whole, or with a variable key.
	Key string `json:"key,omitempty"`
}

// IsEmpty reports whether the policy reads no data.
func (r *DataReads) IsEmpty() bool {
	return r == nil || len(r.Config) == 0 && !r.AllConfig && len(r.Kinds) == 0 && !r.AllKinds
}

// union returns what at least one of two policies reads.
func (r *DataReads) union(other *DataReads) *DataReads {
	u := &DataReads{
		Config: slices.Concat(r.Config, other.Config), AllConfig: r.AllConfig || other.AllConfig,
		Kinds: slices.Concat(r.Kinds, other.Kinds), AllKinds: r.AllKinds || other.AllKinds,
	}
	u.normalize()
	return u
}

// allReads returns what the rules of a module read of the data; nil if they read nothing.
func (m *module) allReads() *DataReads {
	reads := &DataReads{}
	for _, of := range m.dataReads {
		if of != nil {
			reads = reads.union(of)
		}
	}
	if reads.IsEmpty() {
		return nil
	}
	return reads
}

func (r *DataReads) normalize() {
	slices.SortFunc(r.Config, func(a, b ConfigRead) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key)) })
	r.Config = slices.Compact(r.Config)
	slices.Sort(r.Kinds)
	r.Kinds = slices.Compact(r.Kinds)
}

// newDataReads returns what rules read of data.config and data.objects; nil if they read nothing.
func newDataReads(opa *ast.Compiler, refs []ast.Ref) *DataReads {
	reads := &DataReads{}
	for _, ref := range refs {
		for _, read := range dependency.CollectData(opa, ref) {
			reads.add(read.Path)
		}
	}
	if reads.normalize(); reads.IsEmpty() {
		return nil
	}
	return reads
}

// add adds the constant part of a reference.
func (r *DataReads) add(path dependency.Path) {
	switch {
	case path[0] == dependency.ConfigData && len(path) == 1:
		r.AllConfig = true
	case path[0] == dependency.ConfigData:
		read := ConfigRead{Name: path[1]}
		if len(path) > 2 {
			read.Key = path[2]
		}
		r.Config = append(r.Config, read)
	case len(path) == 1:
		r.AllKinds = true
	default:
		r.Kinds = append(r.Kinds, path[1])
	}
}

// validateDataReads returns a problem for each place at which a rule that renders objects reads data.
func validateDataReads(opa *ast.Compiler, pkg ast.Ref, rules ruleSet) []Problem {
	var problems []Problem
	for rule := range rules.ofKind(renderRequest).all() {
		for _, read := range dependency.CollectData(opa, ruleRef(pkg, rule)) {
			through := ""
			if len(read.Through) > 0 {
				through = " through " + strings.Join(read.Through, ", then ")
			}
			problems = append(problems, problemAt(read.Location, "%s reads data.%s%s; objects and requires cannot read data.config and data.objects, "+
				"since a change of them would render nothing again: use spec.parameters", ruleDefinitions[rule].name, strings.Join(read.Path, "."), through))
		}
	}
	return problems
}

// dataWarnings warns of references whose names only the request shows: what does not exist is undefined there.
func dataWarnings(opa *ast.Compiler, pkg ast.Ref, rules ruleSet) []Problem {
	var warnings []Problem
	for rule := range rules.all() {
		for _, read := range dependency.CollectData(opa, ruleRef(pkg, rule)) {
			if len(read.Path) > 1 || read.IsWhole {
				continue
			}
			root := read.Path[0]
			warnings = append(warnings, problemAt(read.Location, "data.%s[…] with a variable key reads all of data.%s, and is undefined for a name "+
				"that does not exist, so that a deny would refuse nothing: write the name as a constant", root, root))
		}
	}
	return warnings
}

// ErrMissingData reports that a policy reads data that does not exist, or that cannot be read. Without
// the error the reference would be undefined, and a deny would refuse nothing.
var ErrMissingData = errors.New("missing data")

// missingDataError names the missing data.
type missingDataError struct{ missing []string }

// Error names all that is missing.
func (e *missingDataError) Error() string { return strings.Join(e.missing, "; ") }

// Is reports whether the target is [ErrMissingData].
func (e *missingDataError) Is(target error) bool { return target == ErrMissingData }

// Missing returns what a policy reads that the data does not have, in sentences; none if it has all.
func (d *Data) Missing(reads *DataReads) []string {
	if reads.IsEmpty() {
		return nil
	}
	var missing []string
	for _, read := range reads.Config {
		if text := d.missingConfig(read); text != "" && !slices.Contains(missing, text) {
			missing = append(missing, text)
		}
	}
	if reads.AllConfig {
		for _, name := range d.configNames() {
			if config, _ := d.configOf(name); config.Unavailable != "" {
				missing = append(missing, fmt.Sprintf("%s cannot be read: %s", dataPath(dependency.ConfigData, name), config.Unavailable))
			}
		}
	}
	kinds := reads.Kinds
	if reads.AllKinds {
		kinds = slices.Concat(kinds, d.kindNames())
		slices.Sort(kinds)
		kinds = slices.Compact(kinds)
	}
	for _, name := range kinds {
		switch kind := d.kindOf(name); {
		case kind == nil:
			missing = append(missing, dataPath(dependency.ObjectData, name)+" does not exist: spec.policyData of the AdmissionParameters does not list the kind")
		case kind.Unavailable != "":
			missing = append(missing, fmt.Sprintf("%s cannot be read: %s", dataPath(dependency.ObjectData, name), kind.Unavailable))
		}
	}
	return missing
}

// missingConfig returns why a ConfigMap or its key cannot be read; empty if it can.
func (d *Data) missingConfig(read ConfigRead) string {
	config, ok := d.configOf(read.Name)
	switch {
	case !ok:
		return dataPath(dependency.ConfigData, read.Name) + " does not exist"
	case config.Unavailable != "":
		return fmt.Sprintf("%s cannot be read: %s", dataPath(dependency.ConfigData, read.Name), config.Unavailable)
	case read.Key == "":
		return ""
	}
	if _, ok := config.Values.Object()[read.Key]; !ok {
		return fmt.Sprintf("%s does not exist: the ConfigMap has no such key", dataPath(dependency.ConfigData, read.Name, read.Key))
	}
	return ""
}

// dataPath returns a reference as a policy writes it.
func dataPath(keys ...string) string {
	ref := ast.Ref{ast.DefaultRootDocument}
	for _, key := range keys {
		ref = append(ref, ast.StringTerm(key))
	}
	return ref.String()
}
