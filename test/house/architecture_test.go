// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// describeRules returns the lines of docs/developer/architecture.md that state the rules of this package.
func describeRules() []string {
	var lines []string
	for _, part := range slices.Sorted(maps.Keys(allowedImports)) {
		lines = append(lines, fmt.Sprintf("| `%s` | %s |", part, joinCode(allowedImports[part])))
	}
	for _, pure := range pureFolders {
		below := "and the folders below it"
		if !pure.subfolders {
			below = "without the folders below it"
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s |", pure.path, below))
	}
	for _, part := range slices.Sorted(maps.Keys(maxArrows)) {
		if most := maxArrows[part]; most > 0 {
			lines = append(lines, fmt.Sprintf("- The folders of `%s` have at most %d imports between them.", part, most))
		}
	}
	return append(lines,
		fmt.Sprintf("- The folders of %s import each other in no circle.", joinCode(slices.Sorted(maps.Keys(maxArrows)))),
		fmt.Sprintf("- A package has at least %d lines, or a reason in the test why it is smaller.", minPackageLines),
		fmt.Sprintf("- A file has one idea: at most %d lines, and at most %d %% of the files more than %d.",
			maxFileLines, maxLargeFilesPercent, usualFileLines),
		fmt.Sprintf("- A line has at most %d characters; no more than %d lines that exist are longer.", maxColumns, knownLongLines),
	)
}

// joinCode returns "`a`, `b`", or "nothing".
func joinCode(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// The tests of this package check the rules that docs/developer/architecture.md states.
func TestArchitectureStatesTheRules(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "developer", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	const heading, next = "\n## Rules\n", "\n## "
	_, section, found := strings.Cut(string(raw), heading)
	if !found {
		t.Fatal("the page has no section Rules")
	}
	section, _, _ = strings.Cut(section, next)
	stated := slices.DeleteFunc(strings.Split(section, "\n"), func(line string) bool {
		return !strings.HasPrefix(line, "| `") && !strings.HasPrefix(line, "- ")
	})
	for _, rule := range describeRules() {
		at := slices.Index(stated, rule)
		if at < 0 {
			t.Errorf("the page does not state: %s", rule)
			continue
		}
		stated = slices.Delete(stated, at, at+1)
	}
	for _, line := range stated {
		t.Errorf("no test checks: %s", line)
	}
}
