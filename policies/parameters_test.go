// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/policies"
	"sluice.dev/policies/parameters"
)

var readParameter = regexp.MustCompile(`input\.parameters\.([A-Za-z]+)`)

// What the policies read is what the table has: a name that differs would be
// undefined, and its rule never hold.
func TestParametersAreThoseThatPoliciesRead(t *testing.T) {
	got, want := make(map[string][]string), make(map[string][]string)
	for _, source := range policies.BuiltIn() {
		for _, match := range readParameter.FindAllStringSubmatch(source.Rego, -1) {
			got[source.Name] = append(got[source.Name], match[1])
		}
		slices.Sort(got[source.Name])
		got[source.Name] = slices.Compact(got[source.Name])
	}
	for _, policy := range parameters.Policies() {
		for _, parameter := range parameters.Of(policy) {
			want[policy] = append(want[policy], parameter.Name)
		}
	}
	for name, read := range got {
		if len(read) == 0 {
			delete(got, name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parameters (-table +Rego):\n%s", diff)
	}
}

// The documentation has each parameter, with its default and its meaning.
func TestParametersAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range parameters.Policies() {
		for _, parameter := range parameters.Of(policy) {
			line := fmt.Sprintf("| `%s` | `%s` | %s | `%s` | %s |", policy, parameter.Name, parameter.Kind.Allowed, defaultOf(parameter), parameter.Meaning)
			if !strings.Contains(string(text), line+"\n") {
				t.Errorf("docs/policies.md lacks the line\n%s", line)
			}
		}
	}
}

// defaultOf is the default as JSON.
func defaultOf(parameter parameters.Parameter) string {
	switch value := parameter.Default.(type) {
	case string:
		return fmt.Sprintf("%q", value)
	case []string:
		quoted := make([]string, len(value))
		for i, text := range value {
			quoted[i] = fmt.Sprintf("%q", text)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	default:
		return fmt.Sprint(value)
	}
}
