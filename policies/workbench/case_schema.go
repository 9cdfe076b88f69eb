// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

// CaseSchema returns the JSON schema (draft 7) of a case, for editors. [Load] also checks what a schema cannot express.
func CaseSchema() map[string]any {
	text := func(description string) map[string]any {
		return map[string]any{"type": "string", "description": description}
	}
	texts := func(description string) map[string]any {
		return map[string]any{"type": "array", "items": map[string]any{"type": "string", "minLength": 1}, "description": description}
	}
	object := func(description string) map[string]any {
		return map[string]any{"type": "object", "description": description}
	}
	expectation := map[string]any{
		"type": "object", "additionalProperties": false, "minProperties": 1,
		"description": "What the policies shall decide.",
		"properties": map[string]any{
			"allowed":  map[string]any{"type": "boolean", "description": "No policy refuses the object, as in each case without denied."},
			"denied":   texts("Each text is a part of a denial, and there are no other denials."),
			"warnings": texts("Each text is a part of a warning, and there are no other warnings. An empty list allows none."),
			"object": object("A part of the resulting object: maps have at least these keys, null means absent, lists of named elements " +
				"have at least these, other lists are equal. Pod templates are as the pods that they create."),
		},
		"not": map[string]any{"anyOf": []any{
			map[string]any{"required": []any{"denied", "object"}},
			map[string]any{
				"required":   []any{"denied", "allowed"},
				"properties": map[string]any{"allowed": map[string]any{"enum": []any{true}}},
			},
		}},
	}
	parameters := object("Parameters of policies, by their names. They replace those of the policy; those of a built-in policy are added " +
		"to the ones as shipped.")
	parameters["additionalProperties"] = map[string]any{"type": "object"}
	subject := object("A Pod, a Job or another workload with pod templates.")
	subject["required"] = []any{"apiVersion", "kind"}
	namespace := object("The labels and annotations of the project's namespace. Default: none.")
	ofStrings := map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}
	namespace["additionalProperties"] = false
	namespace["properties"] = map[string]any{"labels": ofStrings, "annotations": ofStrings}
	return map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "title": "A case of sluice policy test",
		"type": "object", "additionalProperties": false, "required": []any{"name", "object", "expect"},
		"properties": map[string]any{
			"name":    map[string]any{"type": "string", "minLength": 1, "description": "Describes the case; unique in its file."},
			"object":  subject,
			"project": text("A Project in the folder. Default: an example project with two guaranteed GPUs, at most four."),
			"user":    text("The user who creates the object. Default: anna."),
			"groups":  map[string]any{"type": "array", "items": map[string]any{"type": "string"}, "description": "The groups of the user."},
			"now": map[string]any{
				"type": "string", "format": "date-time", "description": "The time of the request. Default: 2026-01-05T12:00:00Z.",
			},
			"namespace":  namespace,
			"parameters": parameters,
			"expect":     expectation,
		},
	}
}
