// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// maxArrows is the largest number of pairs of first-level folders of a part of which one imports the other. The
// part's own package counts as a folder. 0 means no limit. The folders of each part import each other in no circle.
var maxArrows = map[string]int{
	"lifecycle": 40,
	"webhook":   0,
	"gpuagent":  0,
}

// importGraph maps each first-level folder of a part to the folders that it imports. The part's
// own package is ".".
type importGraph map[string]map[string]bool

// newImportGraph returns the graph of a part, without tests.
func newImportGraph(part string, files []sourceFile) importGraph {
	graph := importGraph{}
	for _, f := range files {
		if f.isTest() || !isBelow(f.folder, part) {
			continue
		}
		from := firstLevelFolder(f.folder, part)
		if graph[from] == nil {
			graph[from] = map[string]bool{}
		}
		for _, imported := range f.imports {
			folder, isOurs := strings.CutPrefix(imported, module+"/")
			if !isOurs || !isBelow(folder, part) {
				continue
			}
			if to := firstLevelFolder(folder, part); to != from {
				graph[from][to] = true
			}
		}
	}
	return graph
}

func firstLevelFolder(folder, part string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(folder, part), "/"), "/")
	if first == "" {
		return "."
	}
	return first
}

func (g importGraph) arrows() int {
	count := 0
	for _, imported := range g {
		count += len(imported)
	}
	return count
}

// findCircle returns the folders of a circle, the first also last, or nil.
func (g importGraph) findCircle() []string {
	const visiting, done = 1, 2
	state := map[string]int{}
	var path []string
	var visit func(folder string) []string
	visit = func(folder string) []string {
		path = append(path, folder)
		state[folder] = visiting
		for _, next := range slices.Sorted(maps.Keys(g[folder])) {
			switch state[next] {
			case visiting:
				return append(slices.Clone(path[slices.Index(path, next):]), next)
			case done:
				continue
			}
			if circle := visit(next); circle != nil {
				return circle
			}
		}
		state[folder] = done
		path = path[:len(path)-1]
		return nil
	}
	for _, folder := range slices.Sorted(maps.Keys(g)) {
		if state[folder] == done {
			continue
		}
		if circle := visit(folder); circle != nil {
			return circle
		}
	}
	return nil
}

// findLayoutProblems returns a message if a part has more than the given number of arrows, or a circle.
func findLayoutProblems(part string, most int, graph importGraph) []string {
	var problems []string
	if n := graph.arrows(); most > 0 && n > most {
		problems = append(problems, fmt.Sprintf("the folders of %s have %d imports between them; at most %d are allowed", part, n, most))
	}
	if circle := graph.findCircle(); circle != nil {
		problems = append(problems, fmt.Sprintf("the folders of %s import each other in a circle: %s", part, strings.Join(circle, " -> ")))
	}
	return problems
}

func TestLayout(t *testing.T) {
	files := loadSource(t)
	for part, most := range maxArrows {
		graph := newImportGraph(part, files)
		if len(graph) < 2 {
			t.Errorf("%s has %d folders: the test reads the wrong folder", part, len(graph))
		}
		for _, problem := range findLayoutProblems(part, most, graph) {
			t.Error(problem)
		}
		t.Logf("%s: %d arrows", part, graph.arrows())
	}
}

func TestFindLayoutProblems(t *testing.T) {
	imports := func(paths ...string) string {
		var text strings.Builder
		text.WriteString("package p\n")
		for _, path := range paths {
			fmt.Fprintf(&text, "import _ %q\n", module+"/"+path)
		}
		return text.String()
	}
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"within the limits": {map[string]string{"p/run.go": imports("p/a"), "p/a/a.go": imports("p/b/deep"), "p/b/deep/b.go": imports()}, ""},
		"too many arrows": {
			map[string]string{"p/run.go": imports("p/a", "p/b"), "p/a/a.go": imports("p/b"), "p/b/b.go": imports()},
			"the folders of p have 3 imports between them; at most 2 are allowed",
		},
		"two files make one arrow": {
			map[string]string{"p/run.go": imports("p/a", "p/b"), "p/more.go": imports("p/a"), "p/a/a.go": imports(), "p/b/b.go": imports()}, "",
		},
		"a circle through a subfolder": {
			map[string]string{"p/a/a.go": imports("p/b/deep"), "p/b/b.go": imports("p/a/deep")},
			"the folders of p import each other in a circle: a -> b -> a",
		},
		"a test closes no circle":     {map[string]string{"p/a/a.go": imports("p/b"), "p/b/b_test.go": imports("p/a")}, ""},
		"a folder may import itself":  {map[string]string{"p/a/a.go": imports("p/a/deep")}, ""},
		"a folder with a like prefix": {map[string]string{"p/a/a.go": imports("pq/b"), "pq/b/b.go": imports("p/a")}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := findLayoutProblems("p", 2, newImportGraph("p", newSource(t, tc.files)))
			if strings.Join(got, "; ") != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
