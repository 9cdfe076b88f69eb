// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/policies/merge"
)

// parsePartialObject parses the value of defaults and overrides: at most one object.
func (n *converter) parsePartialObject(value ast.Value) (map[string]any, error) {
	found, ok := value.(*ast.Array)
	if !ok || found.Len() == 0 {
		return nil, nil
	}
	object, ok := found.Elem(0).Value.(ast.Object)
	if !ok {
		return nil, newValueError("must be an object, and is %s", ast.ValueName(found.Elem(0).Value))
	}
	if object.Len() == 0 {
		return nil, nil
	}
	return n.object(object, 0)
}

// parseNodeRequirements parses the value of nodes: {"key", "operator", "values"}.
func (n *converter) parseNodeRequirements(value ast.Value) ([]corev1.NodeSelectorRequirement, error) {
	elements, err := setElements(value)
	if err != nil {
		return nil, err
	}
	var requirements []corev1.NodeSelectorRequirement
	for _, element := range elements {
		fields, err := n.objectWithFields(element.Value, "key", "operator", "values")
		if err != nil {
			return nil, err
		}
		requirement, err := validateNodeRequirement(fields)
		if err != nil {
			return nil, err
		}
		requirements = append(requirements, requirement)
	}
	return requirements, nil
}

// validateNodeRequirement checks what the API server would check, so that the error names
// the policy and not the pod.
func validateNodeRequirement(fields map[string]any) (corev1.NodeSelectorRequirement, error) {
	none := corev1.NodeSelectorRequirement{}
	key, _ := fields["key"].(string)
	if wrong := content.IsLabelKey(key); len(wrong) > 0 {
		return none, newValueError("key %q is not a label key: %s", key, wrong[0])
	}
	operator, _ := fields["operator"].(string)
	requirement := corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOperator(operator)}
	list, isList := fields["values"].([]any)
	if fields["values"] != nil && !isList {
		return none, newValueError("values of %s must be an array of strings", key)
	}
	for _, value := range list {
		text, ok := value.(string)
		if !ok {
			return none, newValueError("values of %s must be strings; %v is not a string", key, value)
		}
		requirement.Values = append(requirement.Values, text)
	}
	switch requirement.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(requirement.Values) == 0 {
			return none, newValueError("%s of %s needs values", operator, key)
		}
		for _, text := range requirement.Values {
			if wrong := validation.IsValidLabelValue(text); len(wrong) > 0 {
				return none, newValueError("value %q of %s is not a label value: %s", text, key, wrong[0])
			}
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(requirement.Values) > 0 {
			return none, newValueError("%s of %s takes no values", operator, key)
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(requirement.Values) != 1 {
			return none, newValueError("%s of %s takes one value", operator, key)
		}
		if _, err := strconv.ParseInt(requirement.Values[0], 10, 64); err != nil {
			return none, newValueError("%s of %s takes an integer, as a string; %q is not an integer", operator, key, requirement.Values[0])
		}
	default:
		return none, newValueError("operator of %s is %q; In, NotIn, Exists, DoesNotExist, Gt and Lt are allowed", key, operator)
	}
	return requirement, nil
}

// parseAdditions parses the value of append: {"path", "value"}.
func (n *converter) parseAdditions(value ast.Value) ([]merge.Addition, error) {
	elements, err := setElements(value)
	if err != nil {
		return nil, err
	}
	var additions []merge.Addition
	for _, element := range elements {
		fields, err := n.objectWithFields(element.Value, "path", "value")
		if err != nil {
			return nil, err
		}
		path, err := parsePath(fields["path"])
		if err != nil {
			return nil, err
		}
		added, ok := fields["value"]
		if !ok || added == nil {
			return nil, newValueError("has no value")
		}
		additions = append(additions, merge.Addition{Path: path, Value: added})
	}
	return additions, nil
}

// parsePaths parses the value of remove: arrays of keys.
func (n *converter) parsePaths(value ast.Value) ([]merge.Path, error) {
	elements, err := setElements(value)
	if err != nil {
		return nil, err
	}
	var paths []merge.Path
	for _, element := range elements {
		converted, err := n.value(element.Value, 0)
		if err != nil {
			return nil, err
		}
		path, err := parsePath(converted)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// parsePath parses a path of field names, "*" and the identifying fields of list
// elements.
func parsePath(value any) (merge.Path, error) {
	steps, ok := value.([]any)
	if !ok || len(steps) == 0 {
		return nil, newValueError(`a path must be an array of keys, as in ["spec", "tolerations"]`)
	}
	for _, step := range steps {
		switch step := step.(type) {
		case string:
			if step != "" {
				continue
			}
		case map[string]any:
			if len(step) > 0 {
				continue
			}
		}
		return nil, newValueError(`the path %v has the step %v; field names, "*" and {"name": "x"} are allowed`, steps, step)
	}
	return steps, nil
}

// objectWithFields converts an object that may have only these fields.
func (n *converter) objectWithFields(value ast.Value, allowed ...string) (map[string]any, error) {
	object, ok := value.(ast.Object)
	if !ok {
		return nil, newValueError("must be an object of %v, and is %s", allowed, ast.ValueName(value))
	}
	fields, err := n.object(object, 0)
	if err != nil {
		return nil, err
	}
	known := 0
	for _, name := range allowed {
		if _, ok := fields[name]; ok {
			known++
		}
	}
	if known < len(fields) {
		return nil, newValueError("has the fields %s; %v are allowed", object, allowed)
	}
	return fields, nil
}
