// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxStations is the largest number of functions that the data of one path passes.
const maxStations = 12

// stationLine is a numbered line of architecture.md that begins with a function.
var stationLine = regexp.MustCompile("^([0-9]+)\\. `([a-zA-Z.]+)`")

// findStationProblems returns a message for each station that no Go file declares, that a path
// visits twice, or that is one too many.
func findStationProblems(document string, files []sourceFile) []string {
	declared := declaredFunctions(files)
	var problems, path []string
	for line := range strings.Lines(document) {
		station := stationLine.FindStringSubmatch(line)
		if station == nil {
			continue
		}
		if station[1] == "1" {
			path = nil
		}
		name := station[2]
		switch {
		case !declared[name]:
			problems = append(problems, name+": no Go file declares it")
		case slices.Contains(path, name):
			problems = append(problems, name+": the path visits it twice")
		}
		if path = append(path, name); len(path) == maxStations+1 {
			problems = append(problems, name+": the path has more stations than allowed")
		}
	}
	return problems
}

// declaredFunctions returns the functions and methods of the product as package.Function or
// package.Type.Method.
func declaredFunctions(files []sourceFile) map[string]bool {
	declared := map[string]bool{}
	for _, f := range files {
		if f.isTest() {
			continue
		}
		for _, declaration := range f.syntax.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := function.Name.Name
			if function.Recv != nil {
				name = receiverName(function.Recv.List[0].Type) + "." + name
			}
			declared[f.syntax.Name.Name+"."+name] = true
		}
	}
	return declared
}

func receiverName(expression ast.Expr) string {
	switch t := expression.(type) {
	case *ast.StarExpr:
		return receiverName(t.X)
	case *ast.IndexExpr:
		return receiverName(t.X)
	case *ast.IndexListExpr:
		return receiverName(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// The stations in docs/developer/architecture.md are functions of the product.
func TestArchitectureNamesFunctions(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "developer", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(regexp.MustCompile("(?m)"+stationLine.String()).FindAll(raw, -1)); n < 40 {
		t.Errorf("the page has only %d stations", n)
	}
	for _, problem := range findStationProblems(string(raw), loadSource(t)) {
		t.Error(problem)
	}
}

func TestStationProblemsAreFound(t *testing.T) {
	f, err := parseSource("a/a.go", "package a\n\ntype T[K any] struct{}\n\nfunc (t *T[K]) Run() {}\n\nfunc Start() {}\n")
	if err != nil {
		t.Fatal(err)
	}
	files := []sourceFile{f}
	if got := findStationProblems("1. `a.Start` starts.\n2. `a.T.Run` runs.\n\n1. `a.Start` again.\n", files); got != nil {
		t.Errorf("a correct page: %v", got)
	}
	got := findStationProblems("1. `a.Start` starts.\n2. `a.Start` starts.\n3. `a.Stop` stops.\n"+strings.Repeat("4. `a.T.Run` runs.\n", maxStations), files)
	for _, want := range []string{"a.Start: the path visits it twice", "a.Stop: no Go file declares it", "a.T.Run: the path has more stations"} {
		if !slices.ContainsFunc(got, func(problem string) bool { return strings.HasPrefix(problem, want) }) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
}
