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

// checkSetting checks the value of a setting.
func (c *Checker) checkSetting(ctx context.Context, r *engine.Requirement) (*Missing, error) {
	o := settingObject(r.Setting)
	state, err := c.get(ctx, o)
	if err != nil {
		return nil, err
	}
	switch {
	case state.unreadable != "":
		return newMissing(r, state.unreadable, state.fix), nil
	case state.content == nil && r.Optional:
		return nil, nil
	case state.content == nil:
		return newMissing(r, state.absent, r.Fix), nil
	}
	value, found, err := Find(state.content, r.Setting.Path)
	where := formatPath(r.Setting.Path) + " of " + o.String()
	switch {
	case err != nil:
		return newMissing(r, truncate(fmt.Sprintf("%s: %v", o, err)), r.Fix), nil
	case r.HasIs && !matchesValue(r.Is, value):
		return newMissing(r, where+" is "+formatValue(value)+" and must "+comparisonVerb(r.Is)+" "+formatExpected(r.Is), r.Fix), nil
	case !r.HasIs && !found:
		return newMissing(r, where+" is not set", r.Fix), nil
	}
	return nil, nil
}

// readSetting returns the text of a setting, else its default. A setting that cannot be
// read keeps its value.
func (c *Checker) readSetting(ctx context.Context, r *engine.Requirement, known map[string]string) (string, *Missing, error) {
	before, ok := known[r.As]
	if !ok {
		before = r.Default
	}
	o := settingObject(r.Setting)
	state, err := c.get(ctx, o)
	if err != nil {
		return "", nil, err
	}
	if state.unreadable != "" {
		return before, newMissing(r, state.unreadable, state.fix), nil
	}
	value, _, err := Find(state.content, r.Setting.Path)
	if err != nil {
		return before, newMissing(r, truncate(fmt.Sprintf("%s: %v", o, err)), settingFix(r)), nil
	}
	text, isText := value.(string)
	switch {
	case value == nil, isText && text == "" && !r.AllowEmpty:
		return r.Default, nil, nil
	case !isText, len(text) > maxSettingLength:
		what := fmt.Sprintf("%s of %s is %s and must be a text of at most %d bytes", formatPath(r.Setting.Path), o, formatValue(value),
			maxSettingLength)
		return before, newMissing(r, what, settingFix(r)), nil
	}
	return text, nil, nil
}

// settingFix returns what to do about a setting that policies cannot use.
func settingFix(r *engine.Requirement) string {
	if r.Fix != "" {
		return r.Fix
	}
	return "correct it, or remove it, so that policies use " + formatExpected(r.Default)
}

// comparisonVerb returns the verb between a value and what a policy requires.
func comparisonVerb(value any) string {
	if _, list := value.([]any); list {
		return "have"
	}
	return "be"
}

// formatExpected returns a value that a policy requires.
func formatExpected(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return formatValue(value)
	}
	return truncate(string(raw))
}

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// checkCRD checks a custom resource definition. The mapper would remember its kind after
// the definition is gone.
func (c *Checker) checkCRD(ctx context.Context, r *engine.Requirement) (*Missing, error) {
	state, err := c.get(ctx, objectRef{kind: crdKind, name: r.CRD})
	if err != nil {
		return nil, err
	}
	switch {
	case state.unreadable != "":
		return newMissing(r, state.unreadable, state.fix), nil
	case state.content == nil && r.Optional:
		return nil, nil
	case state.content == nil:
		return newMissing(r, "the custom resource definition "+r.CRD+" does not exist", r.Fix), nil
	}
	if wrong := versionProblem(state.content, r.Version); wrong != "" {
		return newMissing(r, "the custom resource definition "+r.CRD+" "+wrong, r.Fix), nil
	}
	return nil, nil
}

// versionProblem returns why a definition does not serve the version, or any version if
// that is empty; else "".
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
