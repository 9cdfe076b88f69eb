// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

// product has the names that the product's code uses. A command that only shows a field does not
// count, and neither does the table of unsupported fields.
type product struct {
	files []sourceFile
	// used are the identifiers that occur outside of their declarations, read the names x.Name by
	// the functions that contain them.
	used map[string]bool
	read map[string][]*ast.FuncDecl
}

func newProduct(files []sourceFile) product {
	p := product{used: map[string]bool{}, read: map[string][]*ast.FuncDecl{}}
	for _, f := range files {
		top, _, _ := strings.Cut(f.folder, "/")
		counts := slices.Contains([]string{"lifecycle", "webhook", "policies", "gpuagent", "api"}, top)
		if !counts || f.isTest() || f.isGenerated() || f.path() == "api/tenancy/unsupported.go" {
			continue
		}
		p.files = append(p.files, f)
		for _, declaration := range f.syntax.Decls {
			function, _ := declaration.(*ast.FuncDecl)
			ast.Inspect(declaration, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					p.used[n.Sel.Name] = true
					p.read[n.Sel.Name] = append(p.read[n.Sel.Name], function)
				case *ast.Ident:
					p.used[n.Name] = p.used[n.Name] || function == nil || n != function.Name
				}
				return true
			})
		}
	}
	return p
}

// reads reports whether a function that is used reads a field of this name, of any type. Methods
// are used if their name occurs, or through an interface.
func (p product) reads(field string) bool {
	return slices.ContainsFunc(p.read[field], func(function *ast.FuncDecl) bool {
		return function == nil || p.used[function.Name.Name] || function.Recv != nil
	})
}

// specFields returns the Go names of all fields of a spec by their JSON path.
func specFields(t reflect.Type, path string, fields map[string]string) {
	switch t.Kind() {
	case reflect.Pointer:
		specFields(t.Elem(), path, fields)
		return
	case reflect.Slice, reflect.Map:
		specFields(t.Elem(), path+"[*]", fields)
		return
	}
	if t.Kind() != reflect.Struct || !strings.HasSuffix(t.PkgPath(), "api/v1alpha1") {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		at := path
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			at += "." + name
			fields[at] = f.Name
		}
		specFields(f.Type, at, fields)
	}
}

// Protects invariant 11: the table of fields without effect names each field that no code reads,
// and none that works. If this test fails because a field works now, remove it from the table.
func TestUnsupportedFieldsHaveNoEffect(t *testing.T) {
	p := newProduct(loadSource(t))
	withoutEffect := map[string]func() bool{
		// It has an effect in the other pools: the planner reads it for MIG demand.
		"NodePool spec.preemption":    func() bool { return !policiesRead(t, `[pP]ool\.preemption\b`) },
		"NodePool spec.sharing: HAMi": func() bool { return !policiesRead(t, `(?s)^[^\n]*\npackage sluice\.lib\.grants\n.*"HAMi"`) },
	}
	listed := map[string]bool{}
	for _, f := range tenancy.UnsupportedFields() {
		name := f.Kind + " " + f.Path
		listed[name] = true
		if still := withoutEffect[name]; still == nil {
			t.Errorf("%s: add to this test what shows that it has no effect", name)
		} else if !still() {
			t.Errorf("%s: the code uses it", name)
		}
	}
	for kind, spec := range map[string]any{
		"Department": v1alpha1.DepartmentSpec{}, "Project": v1alpha1.ProjectSpec{}, "NodePool": v1alpha1.NodePoolSpec{},
	} {
		fields := map[string]string{}
		specFields(reflect.TypeOf(spec), "spec", fields)
		if len(fields) < 5 {
			t.Fatalf("found only %d fields of a %s", len(fields), kind)
		}
		for path, field := range fields {
			covered := slices.ContainsFunc(tenancy.UnsupportedFields(), func(f tenancy.UnsupportedField) bool {
				return f.Kind == kind && (f.Path == path || strings.HasPrefix(path, f.Path+"."))
			})
			if !p.reads(field) && !covered {
				t.Errorf("%s %s: no code reads it, and the table does not list it", kind, path)
			}
		}
	}
}

// policiesRead reports whether a policy matches the pattern.
func policiesRead(t *testing.T, pattern string) (found bool) {
	t.Helper()
	matched := regexp.MustCompile(pattern)
	err := filepath.WalkDir(filepath.Join("..", "..", "policies"), func(at string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(at, ".rego") || strings.HasSuffix(at, "_test.rego") {
			return err
		}
		raw, err := os.ReadFile(at)
		found = found || matched.Match(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The documentation has the table of fields without effect.
func TestUnsupportedFieldsAreDocumented(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "platform", "projects.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(raw), "\n## Fields without effect\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := 0
	for _, f := range tenancy.UnsupportedFields() {
		row := fmt.Sprintf("| %s | `%s` | %s |\n", f.Kind, f.Path, f.Effect)
		if rows++; !strings.Contains(section, row) {
			t.Errorf("the documentation lacks %s", row)
		}
	}
	if got := strings.Count(section, "| `spec."); !found || got != rows {
		t.Errorf("the documentation lists %d fields, want %d", got, rows)
	}
}
