// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/policies/engine"
)

// checkSetting looks whether a setting is what it must be.
func (l *Checker) checkSetting(ctx context.Context, r *engine.Requirement) (*Missing, error) {
	o := settingObject(r.Setting)
	seen, err := l.get(ctx, o)
	if err != nil {
		return nil, err
	}
	switch {
	case seen.unreadable != "":
		return newMissing(r, seen.unreadable, seen.fix), nil
	case seen.content == nil && r.Optional:
		return nil, nil
	case seen.content == nil:
		return newMissing(r, seen.absent, r.Fix), nil
	}
	value, found, err := Find(seen.content, r.Setting.Path)
	where := formatPath(r.Setting.Path) + " of " + o.String()
	switch {
	case err != nil:
		return newMissing(r, truncate(fmt.Sprintf("%s: %v", o, err)), r.Fix), nil
	case r.HasIs && !matchesValue(r.Is, value):
		return newMissing(r, where+" is "+formatValue(value)+" and must "+comparisonVerb(r.Is)+" "+formatExpected(r.Is), r.Fix), nil
	case !r.HasIs && !found:
		return newMissing(r, where+" is not there", r.Fix), nil
	}
	return nil, nil
}

// readSetting is what policies are told of a setting: the text that stands there, else
// the default. Where that cannot be told it stays what it was.
func (l *Checker) readSetting(ctx context.Context, r *engine.Requirement, known map[string]string) (string, *Missing, error) {
	before, ok := known[r.As]
	if !ok {
		before = r.Default
	}
	o := settingObject(r.Setting)
	seen, err := l.get(ctx, o)
	if err != nil {
		return "", nil, err
	}
	if seen.unreadable != "" {
		return before, newMissing(r, seen.unreadable, seen.fix), nil
	}
	value, _, err := Find(seen.content, r.Setting.Path)
	if err != nil {
		return before, newMissing(r, truncate(fmt.Sprintf("%s: %v", o, err)), settingFix(r)), nil
	}
	text, isText := value.(string)
	switch {
	case value == nil, isText && text == "":
		return r.Default, nil, nil
	case !isText, len(text) > maxSettingLength:
		what := fmt.Sprintf("%s of %s is %s and must be a text of at most %d bytes", formatPath(r.Setting.Path), o, formatValue(value), maxSettingLength)
		return before, newMissing(r, what, settingFix(r)), nil
	}
	return text, nil, nil
}

// settingFix is what to do about a setting that policies cannot be told.
func settingFix(r *engine.Requirement) string {
	if r.Fix != "" {
		return r.Fix
	}
	return "mend it, or remove it, at which policies take " + formatExpected(r.Default)
}

// comparisonVerb is what a value must do with what a policy wants.
func comparisonVerb(value any) string {
	if _, list := value.([]any); list {
		return "have"
	}
	return "be"
}

// formatExpected is a value that a policy wants.
func formatExpected(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return formatValue(value)
	}
	return truncate(string(raw))
}

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// checkCRD looks for a custom resource definition. The API server's discovery
// would be remembered after the definition is gone.
func (l *Checker) checkCRD(ctx context.Context, r *engine.Requirement) (*Missing, error) {
	seen, err := l.get(ctx, objectRef{kind: crdKind, name: r.CRD})
	if err != nil {
		return nil, err
	}
	switch {
	case seen.unreadable != "":
		return newMissing(r, seen.unreadable, seen.fix), nil
	case seen.content == nil && r.Optional:
		return nil, nil
	case seen.content == nil:
		return newMissing(r, "the custom resource definition "+r.CRD+" is not there", r.Fix), nil
	}
	if wrong := versionProblem(seen.content, r.Version); wrong != "" {
		return newMissing(r, "the custom resource definition "+r.CRD+" "+wrong, r.Fix), nil
	}
	return nil, nil
}

// versionProblem says why a definition does not serve a version, or any; nothing where
// it does.
func versionProblem(definition map[string]any, version string) string {
	conditions, _, _ := unstructured.NestedSlice(definition, "status", "conditions")
	for _, element := range conditions {
		condition, _ := element.(map[string]any)
		if condition["type"] == "Established" && condition["status"] != "True" {
			return truncate(fmt.Sprintf("is not established: %v", condition["message"]))
		}
	}
	var served []string
	versions, _, _ := unstructured.NestedSlice(definition, "spec", "versions")
	for _, element := range versions {
		one, _ := element.(map[string]any)
		if name, _ := one["name"].(string); one["served"] == true {
			served = append(served, name)
		}
	}
	switch {
	case version == "" && len(served) > 0, slices.Contains(served, version):
		return ""
	case len(served) == 0:
		return "serves no version"
	}
	return fmt.Sprintf("does not serve %s, but %s", version, truncate(strings.Join(served, ", ")))
}
