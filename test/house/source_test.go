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
	"sync"
	"testing"
)

const module = "sluice.dev"

// sourceFile is a parsed Go file of the product or of the lab.
type sourceFile struct {
	// folder is relative to the repository, "." at the top.
	folder, name string
	// imports are the import paths of the file.
	imports []string
	// text is the content of the file.
	text   string
	syntax *ast.File
}

func (f sourceFile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

func (f sourceFile) isGenerated() bool { return ast.IsGenerated(f.syntax) }

func (f sourceFile) path() string { return path.Join(f.folder, f.name) }

// lineCount returns the number of lines of the file.
func (f sourceFile) lineCount() int { return strings.Count(f.text, "\n") }

// loadSource parses all Go files of the product and of the lab. It skips the other modules of the repository.
func loadSource(t *testing.T) []sourceFile {
	t.Helper()
	files, err := parseTree()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("found only %d files: the test reads the wrong folder", len(files))
	}
	return files
}

var parseTree = sync.OnceValues(func() ([]sourceFile, error) {
	root := filepath.Join("..", "..")
	var files []sourceFile
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(root, at)
		if entry.IsDir() {
			hidden := strings.HasPrefix(entry.Name(), ".") && at != root
			_, err := os.Stat(filepath.Join(at, "go.mod"))
			generated := entry.Name() == "applyconfiguration"
			otherModule := err == nil && at != root && filepath.ToSlash(relative) != "test/lab"
			if hidden || generated || relative == "bin" || entry.Name() == "testdata" || otherModule {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(entry.Name(), ".go") {
			return nil
		}
		raw, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		f, err := parseSource(filepath.ToSlash(relative), string(raw))
		files = append(files, f)
		return err
	})
	return files, err
})

// parseSource parses one file. relative is its path in the repository.
func parseSource(relative, text string) (sourceFile, error) {
	syntax, err := parser.ParseFile(token.NewFileSet(), relative, text, parser.ParseComments)
	if err != nil {
		return sourceFile{}, err
	}
	f := sourceFile{folder: path.Dir(relative), name: path.Base(relative), text: text, syntax: syntax}
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return sourceFile{}, err
		}
		f.imports = append(f.imports, imported)
	}
	return f, nil
}

// newSource parses files of a counterexample, given by path.
func newSource(t *testing.T, texts map[string]string) []sourceFile {
	t.Helper()
	var files []sourceFile
	for relative, text := range texts {
		f, err := parseSource(relative, text)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}
