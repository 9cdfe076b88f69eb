// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package library_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/library"
	"sluice.dev/policies/workbench"
)

// entry is a policy of the library, with its metadata.
type entry struct {
	// Policy is complete, with its Rego.
	Policy v1alpha1.Policy
	// Title is its name for people, and Description says what it does.
	Title, Description string
	// Misses says what the policy cannot see; empty if there is nothing to know.
	Misses string
	// Cases are its examples.
	Cases []workbench.Case
}

// readAll returns the policies of the library, sorted by name.
func readAll() ([]entry, error) {
	names := library.Names()
	entries := make([]entry, 0, len(names))
	for _, name := range names {
		read, err := readEntry(name)
		if err != nil {
			return nil, fmt.Errorf("policy %s of the library: %w", name, err)
		}
		entries = append(entries, read)
	}
	return entries, nil
}

var errMetadata = errors.New("its package has no METADATA with title and description")

func readEntry(name string) (entry, error) {
	own, err := library.Files(name)
	if err != nil {
		return entry{}, err
	}
	folder, err := workbench.Load(own)
	if err != nil {
		return entry{}, err
	}
	if len(folder.Policies) != 1 || folder.Policies[0].Name != name {
		return entry{}, errors.New("the folder has another policy than that of its name")
	}
	read := entry{Policy: folder.Policies[0], Cases: folder.Cases}
	module, err := ast.ParseModuleWithOpts(name+".rego", read.Policy.Spec.Rego, ast.ParserOptions{
		RegoVersion: ast.RegoV1, ProcessAnnotation: true,
	})
	if err != nil {
		return entry{}, err
	}
	if len(module.Annotations) == 0 || module.Annotations[0].Title == "" || module.Annotations[0].Description == "" {
		return entry{}, errMetadata
	}
	metadata := module.Annotations[0]
	read.Title, read.Description = metadata.Title, metadata.Description
	read.Misses, _ = metadata.Custom["misses"].(string)
	return read, nil
}

// page returns the page of a policy in Markdown: what it does, what it misses, its parameters, its effect on examples, and its Rego.
func (e *entry) page() (string, error) {
	var text strings.Builder
	name := e.Policy.Name
	fmt.Fprintf(&text, "# %s\n\n%s\n\n", e.Title, wrap(e.Description))
	if e.Misses != "" {
		fmt.Fprintf(&text, "What it does not see: %s.\n\n", wrap(e.Misses))
	}
	fmt.Fprintf(&text, "Enforcement as shipped: `%s`.", cmp.Or(e.Policy.Spec.Enforcement, v1alpha1.EnforcementDeny))
	if match, err := json.Marshal(e.Policy.Spec.Match); err != nil {
		return "", err
	} else if string(match) != "{}" {
		fmt.Fprintf(&text, " Match: `%s`.", match)
	}
	fmt.Fprintf(&text, " Its files are in [policies/library/%s](../../../policies/library/%s).\n\n", name, name)
	if err := e.writeParameters(&text); err != nil {
		return "", err
	}
	text.WriteString("## Examples\n\nFrom its cases, with the parameters as shipped:\n\n| case | the policies decide |\n|---|---|\n")
	for i := range e.Cases {
		expect := &e.Cases[i].Expect
		outcome := "admitted"
		switch {
		case len(expect.Denied) > 0:
			outcome = "refused: " + strings.Join(expect.Denied, "; ")
		case expect.Warnings != nil && len(*expect.Warnings) > 0:
			outcome = "admitted with a warning: " + strings.Join(*expect.Warnings, "; ")
		case expect.Object != nil:
			object, err := json.Marshal(expect.Object)
			if err != nil {
				return "", err
			}
			outcome = "admitted with `" + string(object) + "`"
		}
		fmt.Fprintf(&text, "| %s | %s |\n", cell(e.Cases[i].Name), cell(outcome))
	}
	fmt.Fprintf(&text, "\n## Rego\n\n```rego\n%s```\n", e.Policy.Spec.Rego)
	return text.String(), nil
}

// writeParameters writes the table of the parameters, with those of lists of objects below them.
func (e *entry) writeParameters(page *strings.Builder) error {
	if e.Policy.Spec.ParametersSchema == nil {
		return nil
	}
	var schema apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(e.Policy.Spec.ParametersSchema.Raw, &schema); err != nil {
		return fmt.Errorf("spec.parametersSchema: %w", err)
	}
	shipped := make(map[string]json.RawMessage)
	if e.Policy.Spec.Parameters != nil {
		if err := json.Unmarshal(e.Policy.Spec.Parameters.Raw, &shipped); err != nil {
			return fmt.Errorf("spec.parameters: %w", err)
		}
	}
	page.WriteString("## Parameters\n\n| parameter | type | as shipped | what it is |\n|---|---|---|---|\n")
	writeProperties(page, "", &schema, shipped)
	page.WriteString("\n")
	return nil
}

func writeProperties(page *strings.Builder, prefix string, schema *apiextensionsv1.JSONSchemaProps, shipped map[string]json.RawMessage) {
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		property := schema.Properties[name]
		typ, value, description := property.Type, "", property.Description
		if raw, ok := shipped[name]; ok {
			value = "`" + string(raw) + "`"
		}
		if !slices.Contains(schema.Required, name) {
			typ += ", optional"
		}
		fmt.Fprintf(page, "| `%s%s` | %s | %s | %s |\n", prefix, name, typ, cell(value), cell(description))
		if items := property.Items; items != nil && items.Schema != nil {
			writeProperties(page, prefix+name+"[].", items.Schema, nil)
		}
	}
}

// cell returns a text for a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// wrap breaks a text into lines of at most 120 characters.
func wrap(text string) string {
	var lines strings.Builder
	width := 0
	for _, word := range strings.Fields(text) {
		switch {
		case width == 0:
		case width+1+len(word) > 120:
			lines.WriteByte('\n')
			width = 0
		default:
			lines.WriteByte(' ')
			width++
		}
		lines.WriteString(word)
		width += len(word)
	}
	return lines.String()
}
