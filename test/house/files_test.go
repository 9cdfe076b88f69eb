// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// maxFileLines is the largest number of lines of a file that is neither a test nor generated. A file ends
	// where its idea ends, not where a number says.
	maxFileLines = 800
	// usualFileLines is the number of lines that few files exceed.
	usualFileLines = 400
	// maxLargeFilesPercent is the largest proportion of files with more lines than usual.
	maxLargeFilesPercent = 5
	// maxColumns is the largest number of characters of a line in such files.
	maxColumns = 140
	// knownLongLines is the number of longer lines that exist. Lower it when lines are
	// wrapped; never raise it.
	knownLongLines = 428
	// minFilesWithDoc is the number of other files from which a package may have a doc.go.
	minFilesWithDoc = 3
	// maxMainLines is the largest number of lines of a main package's file.
	maxMainLines = 49
)

// findPackageProblems checks that each package has one package comment, and a doc.go only if it
// has at least minFilesWithDoc other files.
func findPackageProblems(files []sourceFile) []string {
	type count struct{ comments, sources, tests, docs int }
	counts := map[string]*count{}
	for _, f := range files {
		c := counts[f.folder]
		if c == nil {
			c = &count{}
			counts[f.folder] = c
		}
		switch {
		case f.name == "doc.go":
			c.docs++
		case f.isTest():
			c.tests++
		default:
			c.sources++
		}
		if f.syntax.Doc != nil && !strings.HasSuffix(f.syntax.Name.Name, "_test") {
			c.comments++
		}
	}
	var problems []string
	for folder, c := range counts {
		// A package of tests only may have its doc.go beside test files.
		others := c.sources
		if others == 0 {
			others = c.tests
		}
		switch {
		case c.comments == 0 && c.sources > 0:
			problems = append(problems, folder+": no file has a package comment")
		case c.comments > 1:
			problems = append(problems, fmt.Sprintf("%s: %d files have a package comment; one is enough", folder, c.comments))
		case c.docs > 0 && others < minFilesWithDoc:
			problems = append(problems, fmt.Sprintf("%s: doc.go beside %d other files; move the comment above package", folder, others))
		}
	}
	slices.Sort(problems)
	return problems
}

func TestPackagesHaveOneComment(t *testing.T) {
	for _, problem := range findPackageProblems(loadSource(t)) {
		t.Error(problem)
	}
}

func TestFindPackageProblems(t *testing.T) {
	const commented, plain = "// Package p is a test.\npackage p\n", "package p\n"
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"comment in the only file": {map[string]string{"p/a.go": commented}, ""},
		"no comment":               {map[string]string{"p/a.go": plain, "p/b.go": plain}, "p: no file has a package comment"},
		"only a license":           {map[string]string{"p/a.go": "// Copyright\n\npackage p\n"}, "p: no file has a package comment"},
		"comment only in a test of another package": {
			map[string]string{"p/a.go": plain, "p/a_test.go": "// Package p_test is a test.\npackage p_test\n"},
			"p: no file has a package comment",
		},
		"two comments":                {map[string]string{"p/a.go": commented, "p/b.go": commented}, "p: 2 files have a package comment; one is enough"},
		"doc.go in a small package":   {map[string]string{"p/a.go": plain, "p/b.go": plain, "p/doc.go": commented}, "p: doc.go beside 2 other files; move the comment above package"},
		"tests do not count":          {map[string]string{"p/a.go": plain, "p/a_test.go": plain, "p/b_test.go": plain, "p/doc.go": commented}, "p: doc.go beside 1 other files; move the comment above package"},
		"doc.go in a package of four": {map[string]string{"p/a.go": plain, "p/b.go": plain, "p/c.go": plain, "p/doc.go": commented}, ""},
		"doc.go in a package of tests": {
			map[string]string{"p/a_test.go": plain, "p/b_test.go": plain, "p/c_test.go": plain, "p/doc.go": commented}, "",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(findPackageProblems(newSource(t, tc.files)), "; "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// findSizeProblems returns a message for each file that is too large, and one if too many are larger than usual.
func findSizeProblems(files []sourceFile) []string {
	var problems, large []string
	all := 0
	for _, f := range files {
		if f.isTest() || f.isGenerated() {
			continue
		}
		all++
		if f.lineCount() > maxFileLines {
			problems = append(problems, fmt.Sprintf("%s has %d lines; at most %d are allowed", f.path(), f.lineCount(), maxFileLines))
		}
		if f.lineCount() > usualFileLines {
			large = append(large, f.path())
		}
	}
	if len(large)*100 > all*maxLargeFilesPercent {
		problems = append(problems, fmt.Sprintf("%d of %d files have more than %d lines; at most %d %% are allowed: %s",
			len(large), all, usualFileLines, maxLargeFilesPercent, strings.Join(large, ", ")))
	}
	return problems
}

func TestFilesAreSmall(t *testing.T) {
	for _, problem := range findSizeProblems(loadSource(t)) {
		t.Error(problem)
	}
}

func TestFindSizeProblems(t *testing.T) {
	const generated = "// Code generated by a tool. DO NOT EDIT.\n\npackage p\n"
	type file struct {
		path, head string
		lines      int
	}
	tests := map[string]struct {
		files []file
		want  string
	}{
		"usual": {[]file{{"p/a.go", "package p\n", usualFileLines}}, ""},
		"too large": {
			[]file{{"p/a.go", "package p\n", maxFileLines + 1}},
			"p/a.go has 801 lines; at most 800 are allowed; 1 of 1 files have more than 400 lines; at most 5 % are allowed: p/a.go",
		},
		"larger than usual": {
			[]file{{"p/a.go", "package p\n", usualFileLines + 1}, {"p/b.go", "package p\n", 9}},
			"1 of 2 files have more than 400 lines; at most 5 % are allowed: p/a.go",
		},
		"a test":    {[]file{{"p/a_test.go", "package p\n", maxFileLines + 1}}, ""},
		"generated": {[]file{{"p/a.go", generated, maxFileLines + 1}}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			texts := map[string]string{}
			for _, f := range tc.files {
				texts[f.path] = f.head + strings.Repeat("\n", f.lines-strings.Count(f.head, "\n"))
			}
			if got := strings.Join(findSizeProblems(newSource(t, texts)), "; "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// findLongLines returns the numbers of lines that exceed maxColumns. A tab is one character.
// Markers of code generators are left out, because they cannot be wrapped.
func findLongLines(f sourceFile) []int {
	if f.isTest() || f.isGenerated() {
		return nil
	}
	var long []int
	number := 0
	for line := range strings.SplitSeq(f.text, "\n") {
		number++
		marker := strings.HasPrefix(strings.TrimLeft(line, "\t"), "// +")
		if utf8.RuneCountInString(line) > maxColumns && !marker {
			long = append(long, number)
		}
	}
	return long
}

func TestLongLinesDoNotIncrease(t *testing.T) {
	count := 0
	var list []string
	for _, f := range loadSource(t) {
		for _, line := range findLongLines(f) {
			count++
			list = append(list, fmt.Sprintf("%s:%d", f.path(), line))
		}
	}
	if count > knownLongLines {
		t.Errorf("%d lines exceed %d characters; at most %d are known:\n%s", count, maxColumns, knownLongLines, strings.Join(list, "\n"))
	}
	t.Logf("%d lines exceed %d characters", count, maxColumns)
}

func TestFindLongLines(t *testing.T) {
	tests := map[string]struct {
		path, line string
		want       int
	}{
		"at the limit":     {"p/a.go", "//" + strings.Repeat("x", maxColumns-2), 0},
		"a line too long":  {"p/a.go", "//" + strings.Repeat("x", maxColumns-1), 1},
		"characters":       {"p/a.go", "//" + strings.Repeat("ü", maxColumns-2), 0},
		"a marker":         {"p/a.go", "\t// +kubebuilder:" + strings.Repeat("x", maxColumns), 0},
		"a comment, no +":  {"p/a.go", "\t// kubebuilder:" + strings.Repeat("x", maxColumns), 1},
		"a test":           {"p/a_test.go", "//" + strings.Repeat("x", maxColumns), 0},
		"a generated file": {"p/a.go", "// Code generated by a tool. DO NOT EDIT.\n//" + strings.Repeat("x", maxColumns), 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			files := newSource(t, map[string]string{tc.path: tc.line + "\n\npackage p\n"})
			if got := len(findLongLines(files[0])); got != tc.want {
				t.Errorf("found %d long lines, want %d", got, tc.want)
			}
		})
	}
}

func TestMainsAreShort(t *testing.T) {
	mains := 0
	for _, f := range loadSource(t) {
		if f.syntax.Name.Name != "main" || f.isTest() {
			continue
		}
		mains++
		if f.lineCount() > maxMainLines {
			t.Errorf("%s has %d lines; a main package's file has at most %d", f.path(), f.lineCount(), maxMainLines)
		}
		for _, declared := range f.syntax.Decls {
			if fn, ok := declared.(*ast.FuncDecl); ok && fn.Name.Name != "main" && fn.Recv == nil && fn.Name.IsExported() {
				t.Errorf("%s exports %s from a main package", f.path(), fn.Name.Name)
			}
		}
	}
	if mains == 0 {
		t.Error("found no main package: the test reads the wrong folder")
	}
}
