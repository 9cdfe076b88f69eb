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

// file is one Go file of the product's module, seen from outside.
type file struct {
	// folder relative to the repository, "" at the top.
	folder, name string
	imports      []string
	syntax       *ast.File
	lines        int
}

func (f file) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

// source parses the whole tree, without the modules that are only built.
func source(t *testing.T) []file {
	t.Helper()
	root := filepath.Join("..", "..")
	var files []file
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		folder, _ := filepath.Rel(root, at)
		if entry.IsDir() {
			hidden := strings.HasPrefix(entry.Name(), ".") && at != root
			_, err := os.Stat(filepath.Join(at, "go.mod"))
			if hidden || folder == "bin" || entry.Name() == "testdata" || (err == nil && at != root) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(entry.Name(), ".go") {
			return nil
		}
		files = append(files, parse(t, at, filepath.ToSlash(folder)))
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

func parse(t *testing.T, at, relative string) file {
	t.Helper()
	raw, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	syntax, err := parser.ParseFile(token.NewFileSet(), at, raw, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	f := file{folder: path.Dir(relative), name: path.Base(relative), syntax: syntax, lines: strings.Count(string(raw), "\n")}
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		f.imports = append(f.imports, imported)
	}
	return f
}
