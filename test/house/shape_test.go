// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"strings"
	"testing"
)

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	said := map[string]string{}
	for _, f := range source(t) {
		if f.isTest() {
			continue
		}
		if _, seen := said[f.folder]; !seen {
			said[f.folder] = ""
		}
		if f.syntax.Name.Name == "main" {
			said[f.folder] = "a command says what it is in its help: enters, leaves, never"
		}
		if f.name == "doc.go" {
			said[f.folder] = strings.ToLower(f.syntax.Doc.Text())
		}
	}
	for folder, text := range said {
		for _, word := range []string{"enters", "leaves", "never"} {
			if !strings.Contains(text, word) {
				t.Errorf("%s/doc.go does not say what %s (what enters, what leaves, what it never does)", folder, word)
				break
			}
		}
	}
}

func TestMainsAreShort(t *testing.T) {
	const most = 50
	mains := 0
	for _, f := range source(t) {
		if f.syntax.Name.Name != "main" || f.isTest() {
			continue
		}
		mains++
		if f.lines >= most {
			t.Errorf("%s/%s has %d lines; a main has fewer than %d", f.folder, f.name, f.lines, most)
		}
		for _, declared := range f.syntax.Decls {
			if fn, ok := declared.(*ast.FuncDecl); ok && fn.Name.Name != "main" && fn.Recv == nil && fn.Name.IsExported() {
				t.Errorf("%s/%s exports %s from a main package", f.folder, f.name, fn.Name.Name)
			}
		}
	}
	if mains == 0 {
		t.Error("found no main package: the test looks in the wrong place")
	}
}
