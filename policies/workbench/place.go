// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"sluice.dev/api/v1alpha1"
)

// Place is where something is in the files of a folder.
type Place struct {
	// File is the path of the file in the folder.
	File string `json:"file"`
	// Line and Column start at 1; both are 0 for the whole file.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
}

// String returns the place as file:line:column.
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column)
}

// Fault is why a file of a folder cannot be used, or only in part. It implements error.
type Fault struct {
	Place
	Err error
}

// Error returns the file and the cause.
func (f *Fault) Error() string { return f.File + ": " + f.Err.Error() }

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

// Files returns the paths of the files of policies, cases and unit tests, sorted.
func (f *Folder) Files() []string { return sortedKeys(f.texts) }

// Text returns the text of a file that the folder was read from.
func (f *Folder) Text(file string) string { return f.texts[file] }

// RegoFile returns the file that has the Rego of a policy.
func (f *Folder) RegoFile(policy string) string { return f.files[policy] }

// PolicyFile returns the file that has the Policy object.
func (f *Folder) PolicyFile(policy string) string { return f.objects[policy] }

// RegoPlace returns where a line and a column of a policy's Rego are. In a YAML file that is within the block of spec.rego,
// or at its beginning if the lines of the file are not those of the Rego.
func (f *Folder) RegoPlace(policy string, line, column int) Place {
	file := f.files[policy]
	if file != f.objects[policy] {
		return Place{File: file, Line: line, Column: column}
	}
	node := valueNode(f.policyNode(policy), "spec", "rego")
	if node == nil {
		return Place{File: file}
	}
	if node.Style&yamlv3.LiteralStyle != 0 {
		at := node.Line + line
		wanted, found := lineOf(node.Value, line), lineOf(f.texts[file], at)
		if line > 0 && line <= strings.Count(node.Value, "\n")+1 && strings.HasSuffix(found, wanted) {
			return Place{File: file, Line: at, Column: len(found) - len(wanted) + column}
		}
	}
	return Place{File: file, Line: node.Line, Column: node.Column}
}

// ReplaceRego replaces the Rego of a policy in the folder's files, in memory. It returns false if that is not possible: in YAML,
// only a block (rego: |) can be replaced.
func (f *Folder) ReplaceRego(policy, rego string) bool {
	at := slices.IndexFunc(f.Policies, func(p v1alpha1.Policy) bool { return p.Name == policy })
	if at < 0 {
		return false
	}
	file := f.files[policy]
	text := rego
	if file == f.objects[policy] {
		var ok bool
		if text, ok = f.replaceBlock(policy, rego); !ok {
			return false
		}
	}
	f.texts[file], f.Policies[at].Spec.Rego = text, rego
	return true
}

// replaceBlock returns the text of a policy's YAML file with other Rego. It returns false unless that is the only change.
func (f *Folder) replaceBlock(policy, rego string) (string, bool) {
	before := f.texts[f.objects[policy]]
	node := valueNode(f.policyNode(policy), "spec", "rego")
	if node == nil || node.Style&yamlv3.LiteralStyle == 0 || strings.Contains(before, "\r") {
		return "", false
	}
	lines, old := strings.Split(before, "\n"), strings.Split(strings.TrimRight(node.Value, "\n"), "\n")
	if node.Line+len(old) > len(lines) {
		return "", false
	}
	indent := ""
	for i, line := range old {
		if found := lines[node.Line+i]; line != "" && strings.HasSuffix(found, line) {
			indent = strings.TrimSuffix(found, line)
			break
		}
	}
	var block []string
	for line := range strings.SplitSeq(strings.TrimRight(rego, "\n"), "\n") {
		if line != "" {
			line = indent + line
		}
		block = append(block, line)
	}
	text := strings.Join(slices.Replace(lines, node.Line, node.Line+len(old), block...), "\n")
	changed := &Folder{texts: map[string]string{f.objects[policy]: text}, objects: f.objects}
	result := valueNode(changed.policyNode(policy), "spec", "rego")
	return text, result != nil && strings.TrimRight(result.Value, "\n") == strings.TrimRight(rego, "\n")
}

// ReplaceUnitTest replaces the text of a file of unit tests, in memory.
func (f *Folder) ReplaceUnitTest(file, text string) { f.texts[file], f.UnitTests[file] = text, text }

// FieldPlace returns where a field of a Policy object is, or the nearest field around it.
func (f *Folder) FieldPlace(policy string, path ...string) Place {
	return placeIn(f.objects[policy], f.policyNode(policy), path)
}

// CasePlace returns where a field of a case is, or the nearest field around it.
func (f *Folder) CasePlace(c *Case, path ...string) Place {
	for _, document := range yamlDocuments(f.texts[c.File]) {
		if name := valueNode(document, "name"); name != nil && name.Value == c.Name {
			return placeIn(c.File, document, path)
		}
	}
	return Place{File: c.File}
}

// policyNode returns the YAML of a Policy object; nil if there is none.
func (f *Folder) policyNode(policy string) *yamlv3.Node {
	for _, document := range yamlDocuments(f.texts[f.objects[policy]]) {
		objects := []*yamlv3.Node{document}
		if items := valueNode(document, "items"); items != nil && items.Kind == yamlv3.SequenceNode {
			objects = items.Content
		}
		for _, object := range objects {
			kind, name := valueNode(object, "kind"), valueNode(object, "metadata", "name")
			if kind != nil && name != nil && kind.Value == "Policy" && name.Value == policy {
				return resolveAlias(object)
			}
		}
	}
	return nil
}

// placeIn returns the place of the value at a path, or of the last key that exists.
func placeIn(file string, node *yamlv3.Node, path []string) Place {
	place := Place{File: file}
	if node == nil {
		return place
	}
	place.Line, place.Column = node.Line, node.Column
	for _, key := range path {
		at, value := childNode(node, key)
		if value == nil {
			break
		}
		place.Line, place.Column, node = at.Line, at.Column, value
	}
	return place
}

// valueNode returns the value at a path; nil if it does not exist.
func valueNode(node *yamlv3.Node, path ...string) *yamlv3.Node {
	for _, key := range path {
		_, node = childNode(node, key)
	}
	return resolveAlias(node)
}

// childNode returns the value of a key, or of an index of a list, and the node that has its place. Both are nil if it does not exist.
func childNode(node *yamlv3.Node, key string) (place, value *yamlv3.Node) {
	node = resolveAlias(node)
	if node == nil {
		return nil, nil
	}
	switch node.Kind {
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				return node.Content[i], node.Content[i+1]
			}
		}
	case yamlv3.SequenceNode:
		if index, err := strconv.Atoi(key); err == nil && index >= 0 && index < len(node.Content) {
			return node.Content[index], node.Content[index]
		}
	default: // a scalar has no fields
	}
	return nil, nil
}

func resolveAlias(node *yamlv3.Node) *yamlv3.Node {
	if node != nil && node.Kind == yamlv3.AliasNode {
		return node.Alias
	}
	return node
}

// faultPlace returns the place of an error in a document that begins at a line: the key that the error names, else the line.
func faultPlace(file, text string, line int, err error) Place {
	place := Place{File: file, Line: line, Column: 1}
	_, name, named := strings.Cut(err.Error(), `unknown field "`)
	if !named {
		return place
	}
	name, _, _ = strings.Cut(name, `"`)
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		name = name[dot+1:]
	}
	for _, document := range yamlDocuments(text) {
		if key := findKey(document, name, maxKeyDepth); key != nil && key.Line >= line {
			return Place{File: file, Line: key.Line, Column: key.Column}
		}
	}
	return place
}

// maxKeyDepth limits the search for a key.
const maxKeyDepth = 16

// findKey returns the first key of a name.
func findKey(node *yamlv3.Node, name string, depth int) *yamlv3.Node {
	if depth == 0 {
		return nil
	}
	for i, child := range node.Content {
		if node.Kind == yamlv3.MappingNode && i%2 == 0 {
			if child.Value == name {
				return child
			}
			continue
		}
		if found := findKey(child, name, depth-1); found != nil {
			return found
		}
	}
	return nil
}
