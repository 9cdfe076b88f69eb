// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"

	"sigs.k8s.io/yaml"

	"sluice.dev/policies/workbench"
)

// Files returns the files of a result: for each policy NAME.yaml, NAME.rego beside it, and NAME.case.yaml with its cases.
func Files(result *Result) []File {
	var files []File
	for i := range result.Policies {
		converted := &result.Policies[i]
		name := converted.Policy.Name
		policy := converted.Policy.DeepCopy()
		rego := policy.Spec.Rego
		policy.Spec.Rego = ""
		content := asMap(policy)
		delete(content, "status")
		delete(object(content["spec"]), "rego")
		files = append(files,
			File{Name: name + ".yaml", Text: append([]byte("# Imported from "+converted.Source+".\n"), encode(content)...)},
			File{Name: name + ".rego", Text: []byte(rego)})
		if len(converted.Cases) > 0 {
			files = append(files, File{Name: name + ".case.yaml", Text: encodeCases(converted.Cases)})
		}
	}
	return files
}

// encodeCases returns the documents of cases.
func encodeCases(cases []workbench.Case) []byte {
	var b bytes.Buffer
	for i := range cases {
		if i > 0 {
			b.WriteString("---\n")
		}
		b.Write(encode(asMap(&cases[i])))
	}
	return b.Bytes()
}

// asMap returns a value as it is encoded.
func asMap(value any) map[string]any {
	var content map[string]any
	if raw, err := json.Marshal(value); err != nil || json.Unmarshal(raw, &content) != nil {
		return nil // policies and cases always encode
	}
	return content
}

func encode(content map[string]any) []byte {
	raw, err := yaml.Marshal(content)
	if err != nil {
		return nil // what was decoded always encodes
	}
	return raw
}
