// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
	"sluice.dev/policies/check"
	"sluice.dev/policies/workbench"
)

// schemaNames are the schemas that the command prints.
var schemaNames = []string{"policy", "case", "input"}

// schemaFiles are the names of their files. OPA finds the schema of input by this name.
var schemaFiles = map[string]string{"policy": "policy.schema.json", "case": "case.schema.json", "input": "input.json"}

func newPolicySchemaCommand() *cobra.Command {
	var directory string
	var force bool
	cmd := &cobra.Command{
		Use:   "schema [policy|case|input]",
		Short: "Print JSON schemas for editors",
		Long: `Print the JSON schema of Policy objects, of cases (*.case.yaml), or of input as the Rego of a policy for pods
reads it. With --output-dir they are written to files, all of them if none is named: policy.schema.json,
case.schema.json and input.json, for editors and for opa check --schema. Files that exist with another content are
not overwritten, unless --force is set: after an update of Sluice the schemas are other ones.`,
		Example: `  # The schemas for an editor, and for opa check --schema .schemas/input.json
  sluice policy schema --output-dir .schemas`,
		Args: cobra.MaximumNArgs(1), ValidArgs: schemaNames,
	}
	cmd.Flags().StringVar(&directory, "output-dir", "", "Directory to write to, instead of the standard output")
	cmd.Flags().BoolVar(&force, "force", false, "Overwrite files with another content")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names := args
		switch {
		case len(args) == 0 && directory == "":
			return errors.New("name a schema (policy, case or input), or a directory with --output-dir")
		case len(args) == 0:
			names = schemaNames
		case !slices.Contains(schemaNames, args[0]):
			return fmt.Errorf("%q is no schema: want policy, case or input", args[0])
		}
		files := make(map[string]string, len(names))
		for _, name := range names {
			text, err := schemaText(name)
			if err != nil {
				return err
			}
			if directory == "" {
				_, err := cmd.OutOrStdout().Write(text)
				return err
			}
			files[schemaFiles[name]] = string(text)
		}
		return writeExport(cmd.OutOrStdout(), directory, files, force)
	}
	return cmd
}

// schemaText returns a schema as JSON.
func schemaText(name string) ([]byte, error) {
	var schema any
	switch name {
	case "case":
		schema = workbench.CaseSchema()
	case "input":
		schema = check.InputSchema(v1alpha1.PolicyMatch{})
	default:
		var err error
		if schema, err = policySchema(); err != nil {
			return nil, err
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(schema)
	return text.Bytes(), err
}

// policySchema returns the schema of the CustomResourceDefinition as an editor needs it. The Rego may be in a file beside the object.
func policySchema() (*apiextensionsv1.JSONSchemaProps, error) {
	text, err := manifests.Files.ReadFile("crds/sluice.dev_policies.yaml")
	if err != nil {
		return nil, err
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return nil, fmt.Errorf("decode the CustomResourceDefinition of policies: %w", err)
	}
	schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	schema.Schema = "http://json-schema.org/draft-07/schema#"
	schema.Title = "A Policy of Sluice"
	delete(schema.Properties, "status")
	schema.Required = []string{"apiVersion", "kind", "metadata"}
	schema.Properties["apiVersion"] = enumSchema(v1alpha1.GroupVersion.String())
	schema.Properties["kind"] = enumSchema("Policy")
	spec := schema.Properties["spec"]
	spec.Required = slices.DeleteFunc(spec.Required, func(name string) bool { return name == "rego" })
	// The CustomResourceDefinition drops fields that it does not have; an editor reports them.
	spec.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: false}
	schema.Properties["spec"] = spec
	return schema, nil
}

func enumSchema(value string) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"` + value + `"`)}}}
}
