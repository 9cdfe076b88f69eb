// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/open-policy-agent/opa/v1/ast"

// Requirement is what a policy needs of the cluster, or what it wants to know of
// it. One of CRD and Setting is set.
type Requirement struct {
	// Policy is the policy's name.
	Policy string
	// CRD is the name of a custom resource definition, and Version the version of it
	// that must be served; empty is any.
	CRD, Version string
	// Setting is a place in an object.
	Setting *Setting
	// Is is what must stand there, where HasIs is set; else anything must. Of a list
	// it must be among the rest. It is JSON, with int64 for integers.
	Is    any
	HasIs bool
	// Optional: where nobody can look, since the definition, the object or its kind
	// is not there, nothing is missing.
	Optional bool
	// As is the name under which policies want to know the text at the setting's
	// place, and Default what they are told where there is none. Nothing is then
	// required.
	As, Default string
	// Fix is what to do where it is missing; empty with As alone.
	Fix string
}

// Setting is a place in an object of the cluster.
type Setting struct {
	// APIVersion and Kind, Namespace and Name are the object's. Namespace is empty
	// where its kind has none.
	APIVersion, Kind, Namespace, Name string
	// Path are the keys to the place. Where it leads on below a string, that is read
	// as YAML; in a list a step is an index.
	Path []string
}

const (
	// maxRequires is how many elements requires may have, maxSteps how many keys a
	// path has: they are looked for again and again.
	maxRequires = 100
	maxSteps    = 32
)

// requirements reads the value of requires.
func (n *native) requirements(policy string, value ast.Value) ([]Requirement, error) {
	elements, err := elementsOf(value)
	if err != nil {
		return nil, err
	}
	if len(elements) > maxRequires {
		return nil, unfit("has %d elements; %d are allowed", len(elements), maxRequires)
	}
	var all []Requirement
	named := make(map[string]bool)
	for _, element := range elements {
		needed, err := n.requirement(element.Value)
		if err != nil {
			return nil, err
		}
		if needed.As != "" && named[needed.As] {
			return nil, unfit("has as %s twice; each setting has a name of its own", needed.As)
		}
		named[needed.As] = needed.As != ""
		needed.Policy = policy
		all = append(all, needed)
	}
	return all, nil
}

// requirement reads one element, in one of its three forms.
func (n *native) requirement(value ast.Value) (Requirement, error) {
	object, ok := value.(ast.Object)
	if !ok {
		return Requirement{}, unfit("must be objects, with crd or setting, and one is %s", ast.ValueName(value))
	}
	fields, err := n.object(object, 0)
	if err != nil {
		return Requirement{}, err
	}
	f := &form{fields: fields}
	var r Requirement
	switch {
	case f.has("crd") == f.has("setting"):
		f.fault("needs either crd or setting")
	case f.has("crd"):
		f.only("crd", "version", "optional", "fix")
		r.CRD = f.text("crd", definitionName)
		r.Version = f.maybe("version", version)
		r.Optional = f.flag("optional")
		r.Fix = f.fix()
	case f.has("as"):
		f.only("setting", "as", "default", "fix")
		r.Setting = f.place("setting")
		r.As = f.text("as", settingName)
		r.Default = f.text("default", anyText)
		if f.has("fix") {
			r.Fix = f.fix()
		}
	default:
		f.only("setting", "is", "optional", "fix")
		r.Setting = f.place("setting")
		r.Is, r.HasIs = fields["is"], f.has("is")
		r.Optional = f.flag("optional")
		r.Fix = f.fix()
	}
	if f.wrong != "" {
		return Requirement{}, unfit("%s", f.wrong)
	}
	return r, nil
}
