// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package library has ready policies for shared GPU clusters, which platform teams copy and adapt.
//
// Each policy has a folder with its Policy object, its Rego, unit tests and cases. The metadata of the Rego says what the policy does
// and what it misses. [Copy] returns the files of a policy under another name. None of them is in force before a platform team applies it.
package library

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"sluice.dev/policies/workbench"
)

//go:embed */*.yaml */*.rego
var files embed.FS

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
	rename := regexp.MustCompile(`(?m)^(package |import data\.)` + former + `(_test)?$|\b` + former + `\.|^metadata: \{name: ` + name + `\}$|"name": "` + name + `"`)
	copied := make(map[string]string)
	err = fs.WalkDir(own, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(own, file)
		renamed := rename.ReplaceAllStringFunc(string(text), func(found string) string {
			if strings.HasPrefix(found, "metadata:") || strings.HasPrefix(found, `"name"`) {
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
