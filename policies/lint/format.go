// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"

	"sluice.dev/policies/workbench"
)

// formatRego returns Rego in the format of opa fmt. A text that is no Rego v1 stays as it is.
func formatRego(text string) string {
	formatted, err := format.SourceWithOpts("policy", []byte(text), format.Opts{RegoVersion: ast.RegoV1})
	if err != nil {
		return text
	}
	return string(formatted)
}

// firstDifference returns the first line in which two texts differ; 0 if they are equal.
func firstDifference(a, b string) int {
	if a == b {
		return 0
	}
	linesA, linesB := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(linesA), len(linesB)) {
		if linesA[i] != linesB[i] {
			return i + 1
		}
	}
	return min(len(linesA), len(linesB))
}

// unformattedMessage is the message about Rego in another format.
const unformattedMessage = "the format differs from that of opa fmt, here first: run sluice policy lint --fix"

func (p *policyLinter) lintFormat() {
	text := p.policy.Spec.Rego
	line := firstDifference(text, formatRego(text))
	if line == 0 {
		return
	}
	// A block of YAML without a final line break is no difference.
	if !strings.HasSuffix(text, "\n") && formatRego(text) == text+"\n" {
		return
	}
	p.at(unformattedRego, &ast.Location{Row: line, Col: 1}, unformattedMessage)
}

func (l *linter) lintTestFormat(file, text string) {
	if line := firstDifference(text, formatRego(text)); line > 0 {
		l.add(unformattedRego, "", workbench.Place{File: file, Line: line, Column: 1}, unformattedMessage)
	}
}

// Format formats the Rego of a folder in memory: its policies, those within YAML files too, and its unit tests. It returns the
// changed files; [workbench.Folder.Text] has their text. The error names policies whose Rego is no block of YAML.
func Format(folder *workbench.Folder) (changed []string, err error) {
	var faults []error
	for i := range folder.Policies {
		name, text := folder.Policies[i].Name, folder.Policies[i].Spec.Rego
		formatted := formatRego(text)
		if formatted == text {
			continue
		}
		if !folder.ReplaceRego(name, formatted) {
			faults = append(faults, fmt.Errorf("%s: policy %s: the Rego is not written as a block (rego: |), so it cannot be formatted there",
				folder.PolicyFile(name), name))
			continue
		}
		changed = append(changed, folder.RegoFile(name))
	}
	for _, file := range folder.Files() {
		text, ok := folder.UnitTests[file]
		if formatted := formatRego(text); ok && formatted != text {
			folder.ReplaceUnitTest(file, formatted)
			changed = append(changed, file)
		}
	}
	slices.Sort(changed)
	return slices.Compact(changed), errors.Join(faults...)
}
