// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// The roots of the data that policies read beside their own rules and the libraries.
const (
	// ConfigData has the ConfigMaps of administrators.
	ConfigData = "config"
	// ObjectData has objects of the cluster.
	ObjectData = "objects"
)

// IsStoredDataRef reports whether a reference leads into data.config or data.objects. If the
// module or a library is a package of that name, the reference leads to its rules instead.
func IsStoredDataRef(opa *ast.Compiler, ref ast.Ref) bool {
	if !IsDataRef(ref) || len(ref) < 2 {
		return false
	}
	root, ok := ref[1].Value.(ast.String)
	return ok && (root == ConfigData || root == ObjectData) && len(RulesAt(opa, ref[:2])) == 0
}

// DataRead is one place at which a rule reads data.config or data.objects.
type DataRead struct {
	// Path is the constant part of the reference below data, such as config, registries, allowed.
	Path Path
	// IsWhole reports whether the reference ends there: the rule reads all of the value, or passes it on.
	// Otherwise the next key is a variable.
	IsWhole bool
	// Location is the place in the module.
	Location *ast.Location
	// Through are the helper rules between the rule in question and this place.
	Through []string
}

// CollectData returns all places at which the rules under a reference read data.config or
// data.objects.
func CollectData(opa *ast.Compiler, ref ast.Ref) []DataRead {
	r := &readCollector{opa: opa, visited: make(map[*ast.Rule]bool)}
	for _, rule := range RulesAt(opa, ref) {
		r.visitRule(rule, nil)
	}
	return r.data
}

// addData adds a reference, if it leads to stored data.
func (r *readCollector) addData(ref ast.Ref, location *ast.Location, through []string) {
	if !IsStoredDataRef(r.opa, ref) {
		return
	}
	path := constantPath(ref)
	r.data = append(r.data, DataRead{
		Path: path, IsWhole: len(path) == len(ref)-1, Location: location, Through: slices.Clone(through),
	})
}
