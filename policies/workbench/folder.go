// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
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
	// files are where the policies' Rego is, by the policies' names.
	files map[string]string
}

const (
	caseSuffix     = ".case.yaml"
	unitTestSuffix = "_test.rego"
)

// maxFileBytes limits a file.
const maxFileBytes = 4 << 20

// Load reads all files in a folder and the folders in it. A file NAME.rego beside NAME.yaml is the Rego of the only Policy in NAME.yaml, if
// that has none. Objects of other kinds are ignored. The error lists every fault with its file.
func Load(folder fs.FS) (*Folder, error) {
	f := &Folder{UnitTests: make(map[string]string), files: make(map[string]string)}
	sources := make(map[string]string) // Rego that is no test, by path
	var faults []error
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && strings.HasPrefix(entry.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		extension := path.Ext(name)
		if !slices.Contains([]string{".rego", ".yaml", ".yml", ".json"}, extension) {
			return nil
		}
		info, err := entry.Info()
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			faults = append(faults, fmt.Errorf("%s: it is no regular file", name))
			return nil
		case info.Size() > maxFileBytes:
			faults = append(faults, fmt.Errorf("%s: %d bytes, of which at most %d are allowed", name, info.Size(), maxFileBytes))
			return nil
		}
		text, err := fs.ReadFile(folder, name)
		switch {
		case err != nil:
		case strings.HasSuffix(name, unitTestSuffix):
			f.UnitTests[name] = string(text)
		case extension == ".rego":
			sources[name] = string(text)
		case strings.HasSuffix(name, caseSuffix):
			err = f.addCases(name, text)
		default:
			err = f.addObjects(name, text)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	faults = append(faults, f.addRego(sources)...)
	if len(faults) == 0 && len(f.Policies) == 0 && len(f.Cases) == 0 {
		faults = append(faults, errors.New("no policies found"))
	}
	return f, errors.Join(faults...)
}

// FromCluster returns the projects, departments and node pools of a cluster, as a folder without policies and tests.
func FromCluster(
	projects []v1alpha1.Project, departments []v1alpha1.Department, pools []v1alpha1.NodePool, parameters v1alpha1.AdmissionParameters,
) *Folder {
	return &Folder{Projects: projects, Departments: departments, NodePools: pools, parameters: parameters, live: true}
}

// ReadObject returns the only object of a file in YAML or JSON.
func ReadObject(text []byte) (object map[string]any, err error) {
	err = eachDocument(text, func(document []byte) error {
		if object != nil {
			return errors.New("it has more than one object")
		}
		return yaml.Unmarshal(document, &object)
	})
	if err == nil && object == nil {
		err = errors.New("it has no object")
	}
	return object, err
}

// addCases adds the cases of a file.
func (f *Folder) addCases(name string, text []byte) error {
	names := make(map[string]bool)
	return eachDocument(text, func(document []byte) error {
		c := Case{File: name}
		if err := yaml.UnmarshalStrict(document, &c); err != nil {
			return fmt.Errorf("a case: %w", err)
		}
		if err := c.validate(); err != nil {
			return fmt.Errorf("case %q: %w", c.Name, err)
		}
		if names[c.Name] {
			return fmt.Errorf("case %q: another case of this file has the same name", c.Name)
		}
		names[c.Name] = true
		f.Cases = append(f.Cases, c)
		return nil
	})
}

// addObjects adds the objects of a file whose kinds the workbench knows.
func (f *Folder) addObjects(name string, text []byte) error {
	return eachDocument(text, func(document []byte) error {
		var header struct {
			APIVersion string           `json:"apiVersion"`
			Kind       string           `json:"kind"`
			Items      []map[string]any `json:"items"`
		}
		if err := yaml.Unmarshal(document, &header); err != nil {
			return err
		}
		if header.APIVersion == "v1" && header.Kind == "List" {
			for _, item := range header.Items {
				one, err := yaml.Marshal(item)
				if err != nil {
					return err
				}
				if err := f.addObjects(name, one); err != nil {
					return err
				}
			}
			return nil
		}
		if header.APIVersion != v1alpha1.GroupVersion.String() {
			return f.addDataObject(document)
		}
		switch header.Kind {
		case "Policy":
			policy, err := decode[v1alpha1.Policy](document)
			f.Policies = append(f.Policies, policy)
			f.files[policy.Name] = name
			return err
		case "Project":
			project, err := decode[v1alpha1.Project](document)
			f.Projects = append(f.Projects, project)
			return err
		case "Department":
			department, err := decode[v1alpha1.Department](document)
			f.Departments = append(f.Departments, department)
			return err
		case "NodePool":
			pool, err := decode[v1alpha1.NodePool](document)
			f.NodePools = append(f.NodePools, pool)
			return err
		case "AdmissionParameters":
			parameters, err := decode[v1alpha1.AdmissionParameters](document)
			parameters.Spec.PolicyData = append(f.parameters.Spec.PolicyData, parameters.Spec.PolicyData...)
			f.parameters = parameters
			return err
		}
		return nil
	})
}

func decode[T any](document []byte) (object T, err error) {
	if err = yaml.UnmarshalStrict(document, &object); err != nil {
		err = fmt.Errorf("a %T: %w", object, err)
	}
	return object, err
}

// addRego gives the policies without Rego that of the file beside them. It returns an error for each policy without Rego and
// each name that occurs twice.
func (f *Folder) addRego(sources map[string]string) (faults []error) {
	perFile := make(map[string]int)
	for _, file := range f.files {
		perFile[file]++
	}
	names := make(map[string]bool)
	for i := range f.Policies {
		policy := &f.Policies[i]
		file := f.files[policy.Name]
		if names[policy.Name] {
			faults = append(faults, fmt.Errorf("%s: policy %s: another policy of the folder has this name", file, policy.Name))
		}
		names[policy.Name] = true
		if policy.Spec.Rego != "" {
			continue
		}
		beside := strings.TrimSuffix(file, path.Ext(file)) + ".rego"
		text, ok := sources[beside]
		if !ok || perFile[file] != 1 {
			faults = append(faults, fmt.Errorf("%s: policy %s: spec.rego: it is required, here or in the file %s", file, policy.Name, path.Base(beside)))
			continue
		}
		policy.Spec.Rego, f.files[policy.Name] = text, beside
	}
	return faults
}

// eachDocument calls a function for each document of a YAML or JSON file that is not empty.
func eachDocument(text []byte, use func([]byte) error) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			return err
		}
		if content == nil {
			continue
		}
		if err := use(document); err != nil {
			return err
		}
	}
}
