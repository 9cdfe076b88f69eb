// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sluice.dev/policies/engine"
)

const limitedPolicy = `package limited

deny contains "too many" if input.workload.gpus > input.parameters.maxGPUs
`

// A policy with a schema is in force only with parameters that the schema allows. Guards
// invariant 11 of the design: a misspelled parameter would have no effect.
func TestParametersMustMatchSchema(t *testing.T) {
	const schema = `{"type": "object", "required": ["maxGPUs"], "properties": {
		"maxGPUs": {"type": "integer", "minimum": 1},
		"types": {"type": "array", "items": {"type": "string", "enum": ["train", "interactive"]}},
		"quotas": {"type": "object", "additionalProperties": {"type": "integer"}}}}`
	for name, tt := range map[string]struct {
		parameters string
		problems   []string
	}{
		"valid":               {`{"maxGPUs": 2, "types": ["train"], "quotas": {"a": 1}}`, nil},
		"missing":             {``, []string{"spec.parameters.maxGPUs is required"}},
		"of another type":     {`{"maxGPUs": "2"}`, []string{`spec.parameters.maxGPUs must be of type integer: "string"`}},
		"too small":           {`{"maxGPUs": 0}`, []string{"spec.parameters.maxGPUs should be greater than or equal to 1"}},
		"misspelled":          {`{"maxGPUs": 1, "maxGpus": 2}`, []string{"spec.parameters.maxGpus is not in spec.parametersSchema"}},
		"named kind":          {`{"maxGPUs": 1, "kind": "x"}`, []string{"spec.parameters.kind is not in spec.parametersSchema"}},
		"not in the list":     {`{"maxGPUs": 1, "types": ["serve"]}`, []string{"spec.parameters.types[0]"}},
		"of a map":            {`{"maxGPUs": 1, "quotas": {"a": "x"}}`, []string{"spec.parameters.quotas.a must be of type integer"}},
		"not an object":       {`[1]`, []string{"must be a JSON object"}},
		"large number":        {`{"maxGPUs": 1e400}`, []string{"spec.parameters"}},
		"two wrong at a time": {`{"maxGPUs": 0, "other": 1}`, []string{"spec.parameters.maxGPUs", "spec.parameters.other"}},
	} {
		t.Run(name, func(t *testing.T) {
			problems := checkSource(t, engine.Source{
				Name: "limited", Rego: limitedPolicy, Parameters: []byte(tt.parameters), ParametersSchema: []byte(schema),
			})
			if len(problems) != len(tt.problems) {
				t.Fatalf("problems: %v; want %d", problems, len(tt.problems))
			}
			for i, text := range tt.problems {
				if !strings.Contains(problems[i].Message, text) {
					t.Errorf("%q does not contain %q", problems[i].Message, text)
				}
			}
		})
	}
}

func checkSource(tb testing.TB, source engine.Source) []engine.Problem {
	tb.Helper()
	e, err := engine.New(engine.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return e.Check(source, nil).Problems
}

// A schema that is invalid, has no effect or takes too long is refused.
func TestInvalidParametersSchema(t *testing.T) {
	deep := strings.Repeat(`{"type": "array", "items": `, 40) + `{"type": "string"}` + strings.Repeat("}", 40)
	for name, tt := range map[string]struct{ schema, problem string }{
		"not an object":          {`{"type": "string"}`, "spec.parametersSchema.type must be object"},
		"without types":          {`{"type": "object", "properties": {"a": {}}}`, "type: Required value"},
		"unknown keyword":        {`{"type": "object", "propertys": {"a": {}}}`, "unknown keyword propertys"},
		"unknown nested keyword": {`{"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "patern": "a"}}}}`, "unknown keyword properties.a.items.patern"},
		"unknown type":           {`{"type": "object", "properties": {"a": {"type": "int"}}}`, `must be one of array, boolean, integer, number, object, string`},
		"reference":              {`{"type": "object", "properties": {"a": {"$ref": "https://example.org/s"}}}`, "'$ref' is not supported"},
		"default":                {`{"type": "object", "properties": {"a": {"type": "integer", "default": 1}}}`, "default has no effect"},
		"nested default":         {`{"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer", "default": 1}}}}`, "default has no effect"},
		"CEL":                    {`{"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}`, "x-kubernetes-validations has no effect"},
		"invalid pattern":        {`{"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}`, "valid regular expression"},
		"multiple of 0":          {`{"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 0}}}`, "must be above 0"},
		"too large":              {`{"type": "object", "description": "` + strings.Repeat("x", 16<<10) + `"}`, "16384 are allowed"},
		"too deep":               {`{"type": "object", "properties": {"a": ` + deep + `}}`, "16 levels"},
		"not JSON":               {`{`, "spec.parametersSchema"},
		"tuple":                  {`{"type": "object", "properties": {"a": {"type": "array", "items": [{"type": "string"}]}}}`, "items"},
		"pattern of fields":      {`{"type": "object", "patternProperties": {"a": {"type": "string"}}}`, "patternProperties"},
	} {
		t.Run(name, func(t *testing.T) {
			problems := checkSource(t, engine.Source{
				Name: "limited", Rego: limitedPolicy, Parameters: []byte(`{"maxGPUs": 1}`), ParametersSchema: []byte(tt.schema),
			})
			if len(problems) != 1 || !strings.Contains(problems[0].Message, tt.problem) {
				t.Errorf("problems: %v; want %q", problems, tt.problem)
			}
		})
	}
}

// A policy reads only those parameters that its schema has.
func TestUnknownParameterInRego(t *testing.T) {
	e, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	source := engine.Source{
		Name: "limited", Rego: limitedPolicy,
		ParametersSchema: []byte(`{"type": "object", "properties": {"maxGpus": {"type": "integer"}}}`),
	}
	problems := e.CheckTypes(source, nil)
	const want = "limited:3:51: input.parameters.maxGPUs does not exist; did you mean maxGpus? input.parameters has maxGpus"
	if len(problems) != 1 || problems[0].Error() != want {
		t.Errorf("problems: %v; want %s", problems, want)
	}
}

// No text of a schema or of parameters panics or takes long.
func FuzzParametersSchema(f *testing.F) {
	f.Add(`{"type": "object", "properties": {"a": {"type": "integer"}}}`, `{"a": 1}`)
	f.Add(`{"type": "object", "properties": {"a": {"type": "string", "format": "date", "nullable": true}}}`, `{"a": null}`)
	f.Add(`{"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true}}}`, `{"a": "1"}`)
	f.Add(`{"type": "object", "x-kubernetes-preserve-unknown-fields": true, "anyOf": [{"required": ["a"]}, {"not": {}}]}`, `{"b": [{}]}`)
	f.Add(`{"type": "object", "properties": {"a": {"type": "number", "multipleOf": 1e-300, "maximum": 1e308}}}`, `{"a": 1e308}`)
	f.Add(`{"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true, "items": {"type": "object"}}}}`, `{"a": [{}, {}]}`)
	e, err := engine.New(engine.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, schema, parameters string) {
		source := engine.Source{Name: "fuzz", Rego: limitedPolicy, Parameters: []byte(parameters), ParametersSchema: []byte(schema)}
		first := e.Check(source, nil)
		for _, problem := range first.Problems {
			if strings.Contains(problem.Message, "the validation failed:") {
				t.Errorf("schema %q, parameters %q: %v", schema, parameters, problem)
			}
		}
		if len(first.Problems) > 0 {
			return
		}
		if len(parameters) > 0 && !json.Valid([]byte(parameters)) {
			t.Errorf("accepted %q, which is not JSON", parameters)
		}
		for _, problem := range e.CheckTypes(source, nil) {
			if problem.Line == 0 {
				t.Errorf("schema %q: %v", schema, problem)
			}
		}
	})
}
