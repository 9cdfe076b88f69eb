// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies is the Rego that is built in: core/*.rego says what holds for
// every pod of a project, schedulers/*.rego what each scheduler must read, and
// core/lib/*.rego is what they, and the policies of platform teams, share.
//
// Enters: nothing; the Rego is embedded when Sluice is built. Leaves: the sources
// of the built-in policies and the libraries, for package engine. Their answers
// are for package merge: the fields that a pod gets, what is refused, and the
// objects in which a scheduler keeps a project's quota.
//
// The built-in policies read little of their input, and none of them reads the
// time or the present use, so that the pods of one controller are judged once.
// What may be set of them is in package parameters.
//
// Nobody has a GPU that is not charged, whatever stands in the place of the policies
// that may be replaced: core.quota, which may not, charges what a pod asks for,
// keeps it in the pool of which it is charged, and refuses a pod that in the end
// has more. All that the policies want is done at once, and they are asked again
// about what came of it; a charge that then is another refuses the pod too.
//
// The package never evaluates a policy, never reads or writes the cluster, and
// never chooses a node.
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

// The folders of the embedded Rego: each policy is named by its folder and file,
// core.gpu for core/gpu.rego.
const (
	coreFolder       = "core"
	schedulersFolder = "schedulers"
	librariesFolder  = "core/lib"
)

// jobPolicies are those of the built-in policies that are asked about Jobs.
var jobPolicies = map[string]bool{"core.jobs": true}

// BuiltIn returns the built-in policies, sorted by name: core.gpu and the rest of
// core, and schedulers.<scheduler>. They are of enforcement Deny and are asked
// about pods at CREATE, core.jobs about Jobs. Their parameters are those that are
// shipped. The slice is the caller's.
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

// Libraries returns the modules that policies import as data.sluice.lib.<name>,
// sorted by name. The slice is the caller's.
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

// regoFile is one embedded file that is no test.
type regoFile struct{ name, text string }

func readRegoFiles(folder string) []regoFile {
	files, err := fs.Glob(rego, folder+"/*.rego")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	var all []regoFile
	for _, file := range files {
		if strings.HasSuffix(file, "_test.rego") {
			continue
		}
		text, err := rego.ReadFile(file)
		if err != nil {
			panic(err) // it was found a moment ago, in memory
		}
		all = append(all, regoFile{strings.TrimSuffix(path.Base(file), ".rego"), string(text)})
	}
	return all
}
