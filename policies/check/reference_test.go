// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the reference of input")

const referenceIntroduction = `# The input of policies

The fields of ` + "`input`" + ` that Sluice defines, generated from the same Go types as the schema of the check. A
static reference to any other field below them is refused when the policy is applied
([policies](../platform/policies.md#the-check)). ` + "`input.object`" + `, ` + "`input.oldObject`" + ` and ` + "`input.review`" + ` have the form of
Kubernetes.

| field | type | description |
|---|---|---|
`

// fieldDescriptions describe the fields of input.
var fieldDescriptions = map[string]string{
	"workload":   "the GPU request of the pod, or of each pod of a template",
	"project":    "the project of the object",
	"department": "the department of the project",
	"nodePools":  "the node pools of the project, in order; for a department its own",
	"namespace":  "the namespace of the object, as of the webhook's cache; objects and requires do not have it",
	"nodePool":   "the node pool for which objects and requires are evaluated",
	"use":        "the present use of the project, some seconds old; only deny, violation and warn may read it",
	"now": "the policy time of the request in the time zone of the department, as RFC 3339 to the second " +
		"(2026-10-15T12:00:00+02:00); only deny, violation and warn may read it",
}

// The reference lists the fields of the schema, with the descriptions of the Go types.
func TestInputReference(t *testing.T) {
	rows := []string{}
	comments := make(fieldComments)
	for _, name := range slices.Sorted(maps.Keys(tenantFields)) {
		rows = append(rows, comments.rows(t, "input."+name, tenantFields[name], fieldDescriptions[name])...)
	}
	got := referenceIntroduction + strings.Join(rows, "")
	path := filepath.Join("..", "..", "docs", "reference", "policy-input.md")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("run go test ./policies/check -update (-file +got):\n%s", diff)
	}
}

// fieldComments are the comments of the fields of structs, by package and then by Type.Field.
type fieldComments map[string]map[string]string

// rows returns the rows of a field and of those below it.
func (c fieldComments) rows(t *testing.T, path string, typ reflect.Type, comment string) []string {
	t.Helper()
	schema := schemaOf(typ)
	kind, _ := schema["type"].(string)
	if kind == "" {
		kind = "any"
	}
	if kind == "array" {
		path += "[]"
	}
	for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	all := []string{fmt.Sprintf("| `%s` | %s | %s |\n", path, kind, comment)}
	properties := schema
	if items, ok := schema["items"].(Schema); ok {
		properties = items
	}
	fields, _ := properties["properties"].(Schema)
	switch {
	case typ.Kind() == reflect.Map && typ.Key() == reflect.TypeFor[v1alpha1.WorkloadType]():
		all = append(all, c.rows(t, path+".<type>", typ.Elem(), "the limits of the workload type "+strings.Join(slices.Sorted(maps.Keys(fields)), ", "))...)
	case typ.Kind() == reflect.Struct && strings.HasPrefix(typ.PkgPath(), "sluice.dev/"):
		for i := range typ.NumField() {
			field := typ.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if fields[name] != nil {
				all = append(all, c.rows(t, path+"."+name, field.Type, c.of(t, typ, field.Name))...)
			}
		}
	}
	return all
}

// of returns the comment of a field on one line.
func (c fieldComments) of(t *testing.T, typ reflect.Type, field string) string {
	t.Helper()
	if c[typ.PkgPath()] == nil {
		c[typ.PkgPath()] = parseComments(t, filepath.Join("..", "..", strings.TrimPrefix(typ.PkgPath(), "sluice.dev/")))
	}
	text := strings.Join(strings.Fields(c[typ.PkgPath()][typ.Name()+"."+field]), " ")
	return strings.ReplaceAll(text, "|", "\\|")
}

func parseComments(t *testing.T, folder string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	comments := make(map[string]string)
	for _, file := range files {
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(syntax, func(node ast.Node) bool {
			spec, ok := node.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if structure, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range structure.Fields.List {
					for _, name := range field.Names {
						comments[spec.Name.Name+"."+name.Name] = field.Doc.Text()
					}
				}
			}
			return false
		})
	}
	return comments
}
