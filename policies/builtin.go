// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies embeds the built-in policies, written in Rego, and their parameters.
//
// core/*.rego has the rules for every pod of a project, schedulers/*.rego the fields and objects that each scheduler
// needs, and core/lib/*.rego the libraries that these and the policies of platform teams share. Package engine
// evaluates them, and package merge applies their changes.
//
// The built-in policies read little of their input, and never the time or the current use, so that the pods of one
// controller are evaluated once.
//
// Every GPU is charged, even if a team replaces other policies: core.quota, which cannot be replaced, charges what a pod
// requests, keeps the pod in the charged pool, and denies a pod that other policies gave more GPUs than it is charged.
// The evaluator applies all changes at once, evaluates the policies again, and denies the pod if its charge differs.
//
// The package never evaluates a policy, reads or writes the cluster, or chooses a node.
package policies

import (
	"embed"
	"io/fs"
	"path"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

//go:embed core/*.rego core/lib/*.rego schedulers/*.rego
var rego embed.FS

// The folders of the embedded Rego. A policy is named after its folder and file: core.gpu is core/gpu.rego.
const (
	coreFolder       = "core"
	schedulersFolder = "schedulers"
	librariesFolder  = "core/lib"
)

// jobPolicies are the built-in policies for Jobs.
var jobPolicies = map[string]bool{"core.jobs": true}

// BuiltIn returns the built-in policies core.<name> and schedulers.<scheduler>, sorted by name. They have the enforcement
// Deny and their default parameters, and match new pods; core.jobs matches new Jobs. The caller owns the slice.
func BuiltIn() []engine.Source {
	var sources []engine.Source
	for _, folder := range []string{coreFolder, schedulersFolder} {
		for _, module := range readRegoFiles(folder) {
			name, kind := folder+"."+module.name, "Pod"
			if jobPolicies[name] {
				kind = "Job.batch"
			}
			sources = append(sources, engine.Source{
				Name:        name,
				Rego:        module.text,
				Enforcement: v1alpha1.EnforcementDeny,
				Match: v1alpha1.PolicyMatch{
					Kinds:      []string{kind},
					Operations: []v1alpha1.PolicyOperation{v1alpha1.OperationCreate},
				},
				Parameters: DefaultParameters(name),
				BuiltIn:    true,
			})
		}
	}
	return sources
}

// Names returns the names of the built-in policies, sorted. The caller owns the slice.
func Names() []string {
	var names []string
	for _, source := range BuiltIn() {
		names = append(names, source.Name)
	}
	return names
}

// Libraries returns the modules that policies import as data.sluice.lib.<name>, sorted by name. The caller owns the
// slice.
func Libraries() []engine.Library {
	var libraries []engine.Library
	for _, module := range readRegoFiles(librariesFolder) {
		libraries = append(libraries, engine.Library{
			Name: path.Join(librariesFolder, module.name+".rego"),
			Rego: module.text,
		})
	}
	return libraries
}

// regoFile is an embedded file that is not a test.
type regoFile struct{ name, text string }

func readRegoFiles(folder string) []regoFile {
	files, err := fs.Glob(rego, folder+"/*.rego")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	var modules []regoFile
	for _, file := range files {
		if strings.HasSuffix(file, "_test.rego") {
			continue
		}
		text, err := rego.ReadFile(file)
		if err != nil {
			panic(err) // the file is embedded
		}
		modules = append(modules, regoFile{strings.TrimSuffix(path.Base(file), ".rego"), string(text)})
	}
	return modules
}
