// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// The limits of a schema. Validation visits each of its nodes for each parameter.
const (
	maxSchemaBytes = 16 << 10
	maxSchemaDepth = 16
)

const (
	parametersPath = "spec.parameters"
	schemaPath     = "spec.parametersSchema"
)

// parametersSchema is the schema of a policy's parameters. nil allows all parameters.
type parametersSchema struct {
	structural *schema.Structural
	validator  *validate.SchemaValidator
}

// parseParametersSchema parses a structural OpenAPI v3 schema, as a
// CustomResourceDefinition has it. It returns nil for an empty text.
func parseParametersSchema(raw []byte) (parsed *parametersSchema, err error) {
	// The libraries expect schemas that the API server has validated.
	defer func() {
		if cause := recover(); cause != nil {
			parsed, err = nil, fmt.Errorf("%s: %v", schemaPath, cause)
		}
	}()
	switch {
	case len(raw) == 0:
		return nil, nil
	case len(raw) > maxSchemaBytes:
		return nil, fmt.Errorf("%s has %d bytes; %d are allowed", schemaPath, len(raw), maxSchemaBytes)
	case jsonDepth(raw) > 2*maxSchemaDepth:
		return nil, fmt.Errorf("%s nests too deep; %d levels are allowed", schemaPath, maxSchemaDepth)
	}
	var props apiextensionsv1.JSONSchemaProps
	if err := decodeStrictly(raw, &props); err != nil {
		return nil, fmt.Errorf("%s: %w", schemaPath, err)
	}
	if props.Type != "object" {
		return nil, fmt.Errorf("%s.type must be object", schemaPath)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, &internal, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", schemaPath, err)
	}
	if err := validateKeywords(field.NewPath(schemaPath), &internal); err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(&internal)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", schemaPath, strings.TrimPrefix(err.Error(), "OpenAPIV3Schema "))
	}
	// The root of a structural schema is a whole object with metadata; parameters are a field.
	root := &schema.Structural{
		Generic:    schema.Generic{Type: "object"},
		Properties: map[string]schema.Structural{"parameters": *structural},
	}
	if errs := schema.ValidateStructural(nil, root); len(errs) > 0 {
		return nil, errors.New(strings.ReplaceAll(errs.ToAggregate().Error(), "properties[parameters]", schemaPath))
	}
	return &parametersSchema{
		structural: structural,
		validator:  validate.NewSchemaValidator(structural.ToKubeOpenAPI(), nil, parametersPath, strfmt.Default),
	}, nil
}

// decodeStrictly decodes a schema, and returns an error for a keyword that it does not have.
// A strict decoder would not look into items and additionalProperties.
func decodeStrictly(raw []byte, props *apiextensionsv1.JSONSchemaProps) error {
	if err := json.Unmarshal(raw, props); err != nil {
		return err
	}
	known, err := json.Marshal(props)
	if err != nil {
		return err
	}
	var before, after any
	if err := errors.Join(json.Unmarshal(raw, &before), json.Unmarshal(known, &after)); err != nil {
		return err
	}
	if lost := lostField(before, after); lost != "" {
		return fmt.Errorf("unknown keyword %s", strings.TrimPrefix(lost, "."))
	}
	return nil
}

// lostField returns the path of a field of before that after lacks; empty if there is none.
// Empty values may be missing.
func lostField(before, after any) string {
	switch before := before.(type) {
	case map[string]any:
		kept, _ := after.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(before)) {
			value, ok := kept[name]
			if !ok && !isEmptyJSON(before[name]) {
				return "." + name
			}
			if lost := lostField(before[name], value); ok && lost != "" {
				return "." + name + lost
			}
		}
	case []any:
		kept, _ := after.([]any)
		for i := range min(len(before), len(kept)) {
			if lost := lostField(before[i], kept[i]); lost != "" {
				return fmt.Sprintf("[%d]%s", i, lost)
			}
		}
	}
	return ""
}

func isEmptyJSON(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return value == nil || value == "" || value == false
}

var jsonTypes = []string{"array", "boolean", "integer", "number", "object", "string"}

// validateKeywords returns an error for a keyword that has no effect in a schema of
// parameters, or that fails at validation only.
func validateKeywords(path *field.Path, props *apiextensions.JSONSchemaProps) error {
	switch {
	case props.Type != "" && !slices.Contains(jsonTypes, props.Type):
		return fmt.Errorf("%s must be one of %s", path.Child("type"), strings.Join(jsonTypes, ", "))
	case props.Default != nil:
		return fmt.Errorf("%s has no effect: policies read a default with object.get(input.parameters, …)", path.Child("default"))
	case len(props.XValidations) > 0:
		return fmt.Errorf("%s has no effect: the policy itself can check its parameters", path.Child("x-kubernetes-validations"))
	case props.MultipleOf != nil && *props.MultipleOf <= 0:
		return fmt.Errorf("%s must be above 0", path.Child("multipleOf"))
	}
	for name, child := range props.Properties {
		if err := validateKeywords(path.Child("properties").Key(name), &child); err != nil {
			return err
		}
	}
	children := map[string][]apiextensions.JSONSchemaProps{"allOf": props.AllOf, "anyOf": props.AnyOf, "oneOf": props.OneOf}
	if props.Not != nil {
		children["not"] = []apiextensions.JSONSchemaProps{*props.Not}
	}
	if props.Items != nil && props.Items.Schema != nil {
		children["items"] = []apiextensions.JSONSchemaProps{*props.Items.Schema}
	}
	if props.AdditionalProperties != nil && props.AdditionalProperties.Schema != nil {
		children["additionalProperties"] = []apiextensions.JSONSchemaProps{*props.AdditionalProperties.Schema}
	}
	for keyword, list := range children {
		for i := range list {
			if err := validateKeywords(path.Child(keyword), &list[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// jsonDepth returns how deep the brackets of a JSON text nest.
func jsonDepth(raw []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// validate returns a problem for each parameter that the schema does not allow. Empty
// parameters are an empty object.
func (s *parametersSchema) validate(raw []byte) (problems []Problem) {
	if s == nil {
		return nil
	}
	defer func() {
		if cause := recover(); cause != nil {
			problems = []Problem{{Message: fmt.Sprintf("%s: the validation failed: %v", parametersPath, cause)}}
		}
	}()
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	var parameters map[string]any
	if err := utiljson.Unmarshal(raw, &parameters); err != nil {
		return []Problem{{Message: fmt.Sprintf("%s: %v", parametersPath, err)}}
	}
	for _, err := range s.validator.Validate(parameters).Errors {
		problems = append(problems, Problem{Message: truncateText(strings.ReplaceAll(err.Error(), " in body ", " "), maxMessageBytes)})
	}
	options := schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true, ParentPath: []string{parametersPath}}
	for _, path := range pruning.PruneWithOptions(parameters, s.structural, false, options) {
		problems = append(problems, Problem{Message: fmt.Sprintf("%s is not in %s", path, schemaPath)})
	}
	return sortProblems(problems)
}

// inputType returns the JSON schema of input.parameters for the type checker.
func (s *parametersSchema) inputType() any {
	if s == nil {
		return map[string]any{}
	}
	return structuralType(s.structural)
}

// structuralType returns the types of a structural schema. The type checker knows no
// nullable values and no objects with some known fields; they have any type.
func structuralType(s *schema.Structural) map[string]any {
	switch {
	case s == nil, s.Nullable, s.XPreserveUnknownFields, s.XIntOrString, s.XEmbeddedResource, s.Type == "":
		return map[string]any{}
	case s.Type == "array":
		return map[string]any{"type": "array", "items": structuralType(s.Items)}
	case s.Type != "object":
		return map[string]any{"type": s.Type}
	}
	fields := make(map[string]any, len(s.Properties))
	for name, child := range s.Properties {
		fields[name] = structuralType(&child)
	}
	return map[string]any{"type": "object", "properties": fields}
}
