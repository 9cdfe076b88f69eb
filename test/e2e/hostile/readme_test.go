// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of README.md")

const readme, tableStart, tableEnd = "README.md", "<!-- counted -->\n", "<!-- end -->"

// README.md has the current number of attacks. After a change of the rows run
// go test ./test/e2e/hostile -run TestReadmeCounts -update.
func TestReadmeCounts(t *testing.T) {
	raw, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(raw), tableStart)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !found || !ended {
		t.Fatalf("%s has no %s and %s", readme, tableStart, tableEnd)
	}
	want := before + tableStart + countTables() + tableEnd + after
	switch {
	case want == string(raw):
	case *update:
		if err := os.WriteFile(readme, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not current; run go test ./test/e2e/hostile -run TestReadmeCounts -update", readme)
	}
}

// countTables returns the numbers of rows and attempts by class, and of attempts by role.
func countTables() string {
	type counts struct{ rows, attempts, allowed, known int }
	byClass, byRole, byEngine := map[class]counts{}, map[role]int{}, map[engine]int{}
	var total counts
	var classes []class
	add := func(c *counts, r row) {
		switch {
		case r.allowed:
			c.allowed++
			return
		case r.known != "":
			c.known++
		}
		c.rows++
		c.attempts += r.attempts()
	}
	for _, r := range allRows {
		c := byClass[r.class]
		add(&c, r)
		add(&total, r)
		byClass[r.class] = c
		classes = append(classes, r.class)
		if r.allowed {
			continue
		}
		for _, as := range r.attackers() {
			byRole[as] += len(r.schedulers())
		}
		for _, e := range r.schedulers() {
			byEngine[e] += len(r.attackers())
		}
	}
	slices.Sort(classes)
	var out strings.Builder
	fmt.Fprintln(&out, "| class | attacks | attempts by role and scheduler | not held | requests that must pass |\n|---|---|---|---|---|")
	for _, c := range slices.Compact(classes) {
		n := byClass[c]
		fmt.Fprintf(&out, "| %s | %d | %d | %d | %d |\n", c, n.rows, n.attempts, n.known, n.allowed)
	}
	fmt.Fprintf(&out, "| **all** | **%d** | **%d** | **%d** | **%d** |\n", total.rows, total.attempts, total.known, total.allowed)
	fmt.Fprintln(&out, "\n| role | attempts |\n|---|---|")
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(byRole)), func(r role) bool { return slices.Contains(everyRole, r) })
	for _, r := range slices.Concat(everyRole, others) {
		fmt.Fprintf(&out, "| %s | %d |\n", r, byRole[r])
	}
	fmt.Fprintln(&out, "\n| scheduler | attempts |\n|---|---|")
	for _, e := range everyEngine {
		fmt.Fprintf(&out, "| %s | %d |\n", e, byEngine[e])
	}
	return out.String()
}
