// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
)

// maxTemplatePath is the length of a template's path, in bytes, and maxTemplatePaths the number of paths of a kind. The
// schema of AdmissionParameters has the same limits.
const (
	maxTemplatePath  = 256
	maxTemplatePaths = 16
)

// templatePath matches the fields from spec to a pod template. Fields of Kubernetes are letters and digits.
var templatePath = regexp.MustCompile(`^spec([.][A-Za-z][A-Za-z0-9]*(\[\*\])?)+$`)

// ParseTemplatePath returns the segments of a path such as spec.workers[*].template, in which [*] stands for all elements
// of a list or all entries of an object.
func ParseTemplatePath(path string) ([]string, error) {
	if len(path) > maxTemplatePath {
		return nil, fmt.Errorf("%.40q...: the path has %d bytes, of which at most %d are allowed", path, len(path), maxTemplatePath)
	}
	if !templatePath.MatchString(path) {
		return nil, fmt.Errorf("%q: must be fields below spec, separated by dots, such as spec.template or spec.workers[*].template", path)
	}
	return strings.Split(strings.ReplaceAll(path, "[*]", "."+wildcard), "."), nil
}

// AddedTemplates are the paths of the pod templates of kinds that AdmissionParameters adds.
type AddedTemplates map[schema.GroupKind][][]string

// NewAddedTemplates returns the templates of the setting. It ignores entries that the schema of AdmissionParameters
// refuses, and those of kinds whose templates Sluice evaluates itself: an older version may have stored them.
func NewAddedTemplates(setting []v1alpha1.PodTemplates) AddedTemplates {
	var added AddedTemplates
	for _, entry := range setting {
		kind := schema.ParseGroupKind(entry.Kind)
		if row, known := evaluatedByKind[kind]; kind.Group == "" || known && len(row.Templates) > 0 {
			continue
		}
		var paths [][]string
		for _, text := range entry.Paths[:min(len(entry.Paths), maxTemplatePaths)] {
			if path, err := ParseTemplatePath(text); err == nil {
				paths = append(paths, path)
			}
		}
		if len(paths) == 0 {
			continue
		}
		if added == nil {
			added = make(AddedTemplates)
		}
		added[kind] = paths
	}
	return added
}
