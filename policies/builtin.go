// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"embed"
	"io/fs"
	"path"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/parameters"
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

// aboutJobs are those of the built-in policies that are asked about Jobs.
var aboutJobs = map[string]bool{"core.jobs": true}

// BuiltIn returns the built-in policies, sorted by name: core.gpu and the rest of
// core, and schedulers.<scheduler>. They are of enforcement Deny and are asked
// about pods at CREATE, core.jobs about Jobs. Their parameters are those that are
// shipped. The slice is the caller's.
func BuiltIn() []engine.Source {
	var sources []engine.Source
	for _, folder := range []string{coreFolder, schedulersFolder} {
		for _, module := range modules(folder) {
			name, kind := folder+"."+module.name, "Pod"
			if aboutJobs[name] {
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
				Parameters: parameters.Defaults(name),
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
	for _, module := range modules(librariesFolder) {
		libraries = append(libraries, engine.Library{
			Name: path.Join(librariesFolder, module.name+".rego"),
			Rego: module.text,
		})
	}
	return libraries
}

// module is one embedded file that is no test.
type module struct{ name, text string }

func modules(folder string) []module {
	files, err := fs.Glob(rego, folder+"/*.rego")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	var all []module
	for _, file := range files {
		if strings.HasSuffix(file, "_test.rego") {
			continue
		}
		text, err := rego.ReadFile(file)
		if err != nil {
			panic(err) // it was found a moment ago, in memory
		}
		all = append(all, module{strings.TrimSuffix(path.Base(file), ".rego"), string(text)})
	}
	return all
}
