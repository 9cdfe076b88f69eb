// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/workloadkind"
)

// update is set by `make generate`.
var update = flag.Bool("update", false, "write the table of the documentation")

const (
	docFile              = "../../docs/platform/workload-templates.md"
	tableBegin, tableEnd = "<!-- The table is written by `make generate`. -->\n", "<!-- end of the table -->\n"
)

// The documentation contains the table of the kinds whose templates are evaluated.
func TestGeneratedTable(t *testing.T) {
	raw, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), tableBegin)
	_, after, closed := strings.Cut(rest, tableEnd)
	if !ok || !closed {
		t.Fatalf("%s lacks the two comments that enclose the table", docFile)
	}
	text := before + tableBegin + renderTable() + tableEnd + after
	if *update {
		if err := os.WriteFile(docFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(text, string(raw)); diff != "" {
		t.Errorf("%s is not up to date with package workloadkind; run `make generate` (-table +file)\n%s", docFile, diff)
	}
}

func renderTable() string {
	var b strings.Builder
	b.WriteString("\n| kind | evaluated when it is created or changed | only when the pods are created |\n|---|---|---|\n")
	for _, kind := range workloadkind.EvaluatedKinds() {
		name := kind.Kind
		if kind.Group != "" {
			name += " (`" + kind.Group + "`)"
		}
		fields := make([]string, len(kind.Templates))
		for i, field := range kind.Templates {
			fields[i] = "`" + field + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, strings.Join(fields, ", "), kind.AtThePod)
	}
	return b.String() + "\n"
}
