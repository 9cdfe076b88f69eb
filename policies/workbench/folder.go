// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/merge/schema"
)

// Folder has the policies of a team, their tests, and where these take place.
type Folder struct {
	// Policies are complete, with their Rego.
	Policies []v1alpha1.Policy
	// Cases are those of all files, sorted by file.
	Cases []Case
	// UnitTests are the Rego files *_test.rego, by path.
	UnitTests map[string]string
	// Projects, Departments and NodePools are where the cases take place.
	Projects    []v1alpha1.Project
	Departments []v1alpha1.Department
	NodePools   []v1alpha1.NodePool
	// Namespaces are the namespaces of a cluster, as far as they could be read.
	Namespaces []corev1.Namespace

	// parameters are those of the folder or the cluster, and live reports that all objects are a cluster's: they are complete.
	parameters v1alpha1.AdmissionParameters
	live       bool
	// data is what the policies read beside input.
	data dataObjects
	// files are where the policies' Rego is, and objects where the Policy objects are, by the policies' names.
	files, objects map[string]string
	// texts are the files of policies, cases and unit tests, by path.
	texts  map[string]string
	faults []*Fault
	// unused are the files of Rego that no policy has, and that are no unit tests.
	unused []string
}

// UnusedRego returns the files of Rego that belong to no policy, sorted. No command evaluates them.
func (f *Folder) UnusedRego() []string { return f.unused }

// Faults returns the faults of the folder's files, in the order of the files. The folder has what could be read.
func (f *Folder) Faults() []*Fault { return f.faults }

// Has reports whether the folder has a policy of a name.
func (f *Folder) Has(policy string) bool {
	return slices.ContainsFunc(f.Policies, func(p v1alpha1.Policy) bool { return p.Name == policy })
}

const (
	caseSuffix     = ".case.yaml"
	unitTestSuffix = "_test.rego"
)

// maxFileBytes limits a file.
const maxFileBytes = 4 << 20

// ErrNoPolicies means that a folder has neither policies nor cases.
var ErrNoPolicies = errors.New("no policies found")

// Load reads all files in a folder and the folders in it, or only the named ones. A file NAME.rego beside NAME.yaml is the
// Rego of the only Policy in NAME.yaml, if that has none. Objects of other kinds are ignored. The error lists every fault
// with its file; the folder then has what could be read.
func Load(folder fs.FS, names ...string) (*Folder, error) {
	f := &Folder{
		UnitTests: make(map[string]string), files: make(map[string]string), objects: make(map[string]string), texts: make(map[string]string),
	}
	sources := make(map[string]bool) // files with Rego that is no test
	visit := func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && strings.HasPrefix(entry.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".rego", ".yaml", ".yml", ".json"}, path.Ext(name)) {
			return nil
		}
		f.loadFile(folder, name, entry, sources)
		return nil
	}
	if len(names) == 0 {
		names = []string{"."}
	}
	for _, name := range names {
		if err := fs.WalkDir(folder, name, visit); err != nil {
			return nil, err
		}
	}
	f.addRego(sources)
	if len(f.faults) == 0 && len(f.Policies) == 0 && len(f.Cases) == 0 {
		return f, ErrNoPolicies
	}
	faults := make([]error, len(f.faults))
	for i, fault := range f.faults {
		faults[i] = fault
	}
	return f, errors.Join(faults...)
}

// loadFile reads one file. Its faults are kept.
func (f *Folder) loadFile(folder fs.FS, name string, entry fs.DirEntry, sources map[string]bool) {
	info, err := entry.Info()
	switch {
	case err != nil:
		f.fault(name, 0, err)
		return
	case !info.Mode().IsRegular():
		f.fault(name, 0, errors.New("it is no regular file"))
		return
	case info.Size() > maxFileBytes:
		f.fault(name, 0, fmt.Errorf("%d bytes, of which at most %d are allowed", info.Size(), maxFileBytes))
		return
	}
	text, err := fs.ReadFile(folder, name)
	if err != nil {
		f.fault(name, 0, err)
		return
	}
	f.texts[name] = string(text)
	switch {
	case strings.HasSuffix(name, unitTestSuffix):
		f.UnitTests[name] = string(text)
	case path.Ext(name) == ".rego":
		sources[name] = true
	case strings.HasSuffix(name, caseSuffix):
		err = f.addCases(name, text)
	default:
		err = f.addObjects(name, text)
	}
	if err != nil {
		f.fault(name, 1, err)
	}
}

// fault keeps an error of a document that begins at a line; 0 is the whole file.
func (f *Folder) fault(file string, line int, err error) {
	place := Place{File: file}
	if line > 0 {
		place = faultPlace(file, f.texts[file], line, err)
	}
	f.faults = append(f.faults, &Fault{place, err})
}

// FromCluster returns the projects, departments and node pools of a cluster, as a folder without policies and tests.
func FromCluster(
	projects []v1alpha1.Project, departments []v1alpha1.Department, pools []v1alpha1.NodePool, parameters v1alpha1.AdmissionParameters,
) *Folder {
	return &Folder{Projects: projects, Departments: departments, NodePools: pools, parameters: parameters, live: true}
}

// addCases adds the cases of a file, and keeps the faults of each.
func (f *Folder) addCases(name string, text []byte) error {
	names := make(map[string]bool)
	return EachDocument(text, func(document []byte, line int) error {
		c := Case{File: name}
		err := unmarshalStrict(document, &c)
		if err != nil {
			err = fmt.Errorf("a case: %w; a case has %s, and expect has %s", err, fieldsOf(c), fieldsOf(c.Expect))
		} else if err = c.validate(); err != nil {
			err = fmt.Errorf("case %q: %w", c.Name, err)
		} else if names[c.Name] {
			err = fmt.Errorf("case %q: another case of this file has the same name", c.Name)
		}
		if err != nil {
			f.fault(name, line, err)
			return nil
		}
		names[c.Name] = true
		f.Cases = append(f.Cases, c)
		return nil
	})
}

// addObjects adds the objects of a file whose kinds the workbench knows, and keeps the faults of each.
func (f *Folder) addObjects(name string, text []byte) error {
	return EachDocument(text, func(document []byte, line int) error {
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			return plainError(err)
		}
		header, ok := content.(map[string]any)
		if !ok {
			if strings.Contains(string(document), v1alpha1.GroupVersion.Group+"/") {
				f.fault(name, line, errors.New("it is no object: want objects, separated by ---"))
			}
			return nil // what programs print, such as lists
		}
		apiVersion, kind := schema.AsString(header["apiVersion"]), schema.AsString(header["kind"])
		if err := misplaced(apiVersion, kind, header["object"] != nil && header["expect"] != nil); err != nil {
			f.fault(name, line, err)
			return nil
		}
		if apiVersion != v1alpha1.GroupVersion.String() {
			if err := f.addDataObject(document); err != nil {
				f.fault(name, line, err)
			}
			return nil
		}
		var err error
		switch kind {
		case "Policy":
			var policy v1alpha1.Policy
			if policy, err = decode[v1alpha1.Policy](document); err == nil {
				f.addPolicy(policy, name, line)
			}
		case "Project":
			err = decodeInto(&f.Projects, document)
		case "Department":
			err = decodeInto(&f.Departments, document)
		case "NodePool":
			err = decodeInto(&f.NodePools, document)
		case "AdmissionParameters":
			var parameters v1alpha1.AdmissionParameters
			if parameters, err = decode[v1alpha1.AdmissionParameters](document); err == nil {
				parameters.Spec.PolicyData = append(f.parameters.Spec.PolicyData, parameters.Spec.PolicyData...)
				f.parameters = parameters
			}
		}
		if err != nil {
			f.fault(name, line, err)
		}
		return nil
	})
}

// misplaced returns why an object would be ignored although its author means it for the workbench.
func misplaced(apiVersion, kind string, isCase bool) error {
	group, _, _ := strings.Cut(apiVersion, "/")
	switch {
	case isCase && apiVersion == "" && kind == "":
		return fmt.Errorf("it is a case, which only a file with the ending %s may have: rename the file", caseSuffix)
	case group == v1alpha1.GroupVersion.Group && apiVersion != v1alpha1.GroupVersion.String():
		return fmt.Errorf("apiVersion: %q is no version of Sluice: want %s", apiVersion, v1alpha1.GroupVersion)
	case group == v1alpha1.GroupVersion.Group && !slices.Contains(folderKinds, kind) &&
		slices.ContainsFunc(folderKinds, func(known string) bool { return strings.EqualFold(known, strings.TrimSuffix(kind, "s")) }):
		return fmt.Errorf("kind: %q is no kind of %s: want %s", kind, v1alpha1.GroupVersion, strings.Join(folderKinds, ", "))
	}
	return nil
}

// folderKinds are the kinds of Sluice that a folder can have. Other ones are ignored.
var folderKinds = []string{"Policy", "Project", "Department", "NodePool", "AdmissionParameters"}

// addPolicy adds a policy, unless the API server would refuse its name, or the folder has one of its name.
func (f *Folder) addPolicy(policy v1alpha1.Policy, file string, line int) {
	if faults := validation.IsDNS1123Subdomain(policy.Name); len(faults) > 0 {
		f.fault(file, line, fmt.Errorf("metadata.name: %q: %s", policy.Name, strings.Join(faults, "; ")))
		return
	}
	if f.Has(policy.Name) {
		f.fault(file, line, fmt.Errorf("policy %s: another policy of the folder has this name", policy.Name))
		return
	}
	f.Policies = append(f.Policies, policy)
	f.files[policy.Name], f.objects[policy.Name] = file, file
}

// addRego gives the policies without Rego that of the file beside them. A policy without Rego is a fault, and removed.
func (f *Folder) addRego(sources map[string]bool) {
	perFile := make(map[string]int)
	for _, file := range f.files {
		perFile[file]++
	}
	f.Policies = slices.DeleteFunc(f.Policies, func(p v1alpha1.Policy) bool {
		if p.Spec.Rego != "" {
			return false
		}
		file := f.files[p.Name]
		beside := strings.TrimSuffix(file, path.Ext(file)) + ".rego"
		if sources[beside] && perFile[file] == 1 && f.texts[beside] != "" {
			return false
		}
		place := f.FieldPlace(p.Name, "spec")
		f.faults = append(f.faults, &Fault{
			place, fmt.Errorf("policy %s: spec.rego: it is required, here or in the file %s", p.Name, path.Base(beside)),
		})
		return true
	})
	for i := range f.Policies {
		if policy := &f.Policies[i]; policy.Spec.Rego == "" {
			file := f.files[policy.Name]
			f.files[policy.Name] = strings.TrimSuffix(file, path.Ext(file)) + ".rego"
			policy.Spec.Rego = f.texts[f.files[policy.Name]]
			delete(sources, f.files[policy.Name])
		}
	}
	f.unused = sortedKeys(sources)
}
