// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package library has ready policies for shared GPU clusters, which platform teams copy and adapt.
//
// Each policy has a folder with its Policy object, its Rego, unit tests and cases. The metadata of the Rego says what the policy does
// and what it misses. [All] returns the policies. None of them is in force before a platform team applies it.
package library

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/workbench"
)

//go:embed */*.yaml */*.rego
var files embed.FS

// Entry is a policy of the library.
type Entry struct {
	// Policy is complete, with its Rego.
	Policy v1alpha1.Policy
	// Title is its name for people, and Description says what it does.
	Title, Description string
	// Misses says what the policy cannot see; empty if there is nothing to know.
	Misses string
	// Cases are its examples.
	Cases []workbench.Case
}

// All returns the policies of the library, sorted by name.
func All() ([]Entry, error) {
	names := Names()
	entries := make([]Entry, 0, len(names))
	for _, name := range names {
		entry, err := load(name)
		if err != nil {
			return nil, fmt.Errorf("policy %s of the library: %w", name, err)
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// Names returns the names of the policies, sorted.
func Names() []string {
	folders, _ := fs.ReadDir(files, ".") // it is part of the program
	names := make([]string, len(folders))
	for i, folder := range folders {
		names[i] = folder.Name()
	}
	return names
}

// Files returns the files of a policy: its Policy object, its Rego, its tests, and the projects in which its cases take place. The error
// names the policies of the library.
func Files(name string) (fs.FS, error) {
	if names := Names(); !slices.Contains(names, name) {
		return nil, fmt.Errorf("the library has no policy %q; it has %s", name, strings.Join(names, ", "))
	}
	return fs.Sub(files, name)
}

// Copy returns the files of a policy under another name, which is a DNS label, by their names.
func Copy(name, as string) (map[string]string, error) {
	own, err := Files(name)
	if err != nil {
		return nil, err
	}
	packageName, err := workbench.PackageOf(as)
	if err != nil {
		return nil, err
	}
	former := strings.ReplaceAll(name, "-", "_")
	rename := regexp.MustCompile(`(?m)^(package |import data\.)` + former + `(_test)?$|\b` + former + `\.|^metadata: \{name: ` + name + `\}$`)
	copied := make(map[string]string)
	err = fs.WalkDir(own, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(own, file)
		renamed := rename.ReplaceAllStringFunc(string(text), func(found string) string {
			if strings.HasPrefix(found, "metadata:") {
				return strings.ReplaceAll(found, name, as)
			}
			return strings.ReplaceAll(found, former, packageName)
		})
		if rest, isOwn := strings.CutPrefix(file, name); isOwn {
			copied[as+rest] = renamed
		} else {
			copied[as+"-"+file] = renamed
		}
		return err
	})
	return copied, err
}

var errMetadata = errors.New("its package has no METADATA with title and description")

func load(name string) (Entry, error) {
	own, err := Files(name)
	if err != nil {
		return Entry{}, err
	}
	folder, err := workbench.Load(own)
	if err != nil {
		return Entry{}, err
	}
	if len(folder.Policies) != 1 || folder.Policies[0].Name != name {
		return Entry{}, errors.New("the folder has another policy than that of its name")
	}
	entry := Entry{Policy: folder.Policies[0], Cases: folder.Cases}
	module, err := ast.ParseModuleWithOpts(name+".rego", entry.Policy.Spec.Rego, ast.ParserOptions{
		RegoVersion: ast.RegoV1, ProcessAnnotation: true,
	})
	if err != nil {
		return Entry{}, err
	}
	if len(module.Annotations) == 0 || module.Annotations[0].Title == "" || module.Annotations[0].Description == "" {
		return Entry{}, errMetadata
	}
	metadata := module.Annotations[0]
	entry.Title, entry.Description = metadata.Title, metadata.Description
	entry.Misses, _ = metadata.Custom["misses"].(string)
	return entry, nil
}
