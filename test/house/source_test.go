// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "sluice.dev"

// sourceFile is one Go file of the product's module, seen from outside.
type sourceFile struct {
	// folder relative to the repository, "" at the top.
	folder, name string
	imports      []string
	syntax       *ast.File
	lines        int
}

func (f sourceFile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

// loadSource parses the whole tree, without the modules that are only built.
func loadSource(t *testing.T) []sourceFile {
	t.Helper()
	root := filepath.Join("..", "..")
	var files []sourceFile
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		folder, _ := filepath.Rel(root, at)
		if entry.IsDir() {
			hidden := strings.HasPrefix(entry.Name(), ".") && at != root
			_, err := os.Stat(filepath.Join(at, "go.mod"))
			generated := entry.Name() == "applyconfiguration"
			if hidden || generated || folder == "bin" || entry.Name() == "testdata" || (err == nil && at != root) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(entry.Name(), ".go") {
			return nil
		}
		files = append(files, parseSource(t, at, filepath.ToSlash(folder)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("found only %d files below %s: the test looks in the wrong place", len(files), root)
	}
	return files
}

func parseSource(t *testing.T, at, relative string) sourceFile {
	t.Helper()
	raw, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	syntax, err := parser.ParseFile(token.NewFileSet(), at, raw, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	f := sourceFile{folder: path.Dir(relative), name: path.Base(relative), syntax: syntax, lines: strings.Count(string(raw), "\n")}
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		f.imports = append(f.imports, imported)
	}
	return f
}

func TestPackagesHaveDocumentation(t *testing.T) {
	said := map[string]string{}
	for _, f := range loadSource(t) {
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
	for _, f := range loadSource(t) {
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
