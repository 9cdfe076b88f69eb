// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/policies"
)

var parameterPattern = regexp.MustCompile(`input\.parameters\.([A-Za-z]+)`)

// What the policies read is what the table has: a name that differs would be
// undefined, and its rule never hold.
func TestParametersMatchRego(t *testing.T) {
	got, want := make(map[string][]string), make(map[string][]string)
	for _, source := range policies.BuiltIn() {
		for _, match := range parameterPattern.FindAllStringSubmatch(source.Rego, -1) {
			got[source.Name] = append(got[source.Name], match[1])
		}
		slices.Sort(got[source.Name])
		got[source.Name] = slices.Compact(got[source.Name])
	}
	for _, policy := range slices.Sorted(maps.Keys(policies.ParameterTable)) {
		for _, parameter := range policies.ParameterTable[policy] {
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
	text, err := os.ReadFile("../docs/platform/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range slices.Sorted(maps.Keys(policies.ParameterTable)) {
		for _, parameter := range policies.ParameterTable[policy] {
			line := fmt.Sprintf("| `%s` | `%s` | %s | `%s` | %s |", policy, parameter.Name, parameter.Kind.Allowed, defaultJSON(parameter), parameter.Description)
			if !strings.Contains(string(text), line+"\n") {
				t.Errorf("docs/platform/policies.md lacks the line\n%s", line)
			}
		}
	}
}

// defaultJSON is the default as JSON.
func defaultJSON(parameter policies.Parameter) string {
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

func TestValidateParameters(t *testing.T) {
	for name, example := range map[string]struct {
		policy, set string
		want        []string
	}{
		"nothing":         {"core.limits", `{}`, nil},
		"what is allowed": {"core.limits", `{"minimumGraceSeconds": 60}`, nil},
		"lists and flags": {"core.devices", `{"allowedHostPaths": ["/data", "/mnt/.snapshots/", "/"], "refuseEnvFrom": false, "runtimeClasses": [], "allowedCapabilities": ["SYS_ADMIN"]}`, nil},
		"an empty name":   {"core.priority", `{"defaultClass": "", "refuseOtherClasses": true}`, nil},
		"a text for a number": {"core.limits", `{"minimumGraceSeconds": "soon"}`, []string{
			`spec.parameters.minimumGraceSeconds: Invalid value: "soon": must be a whole number of seconds from 1 to 86400`,
		}},
		"a fraction": {"core.limits", `{"minimumGraceSeconds": 1.5}`, []string{
			`spec.parameters.minimumGraceSeconds: Invalid value: 1.5: must be a whole number of seconds from 1 to 86400`,
		}},
		"null": {"core.devices", `{"allowedHostPaths": null}`, []string{
			`spec.parameters.allowedHostPaths: Invalid value: null: must be a list of absolute paths without . and .., such as /data`,
		}},
		"paths that lead up, and none": {"core.devices", `{"allowedHostPaths": ["/data/../etc"], "runtimeClasses": ["NVIDIA"], "refuseEnvFrom": "no"}`, []string{
			`spec.parameters.allowedHostPaths: Invalid value: ["/data/../etc"]: must be a list of absolute paths without . and .., such as /data`,
			`spec.parameters.refuseEnvFrom: Invalid value: "no": must be true or false`,
			`spec.parameters.runtimeClasses: Invalid value: ["NVIDIA"]: must be a list of names of lower-case letters, digits, - and .`,
		}},
		"gates": {"core.limits", `{"schedulingGates": ["example.org/quota", "later"]}`, nil},
		"a gate with a space": {"core.limits", `{"schedulingGates": ["a b"]}`, []string{
			`spec.parameters.schedulingGates: Invalid value: ["a b"]: must be a list of names such as example.org/gate`,
		}},
		"a capability with the kernel's prefix": {"core.devices", `{"allowedCapabilities": ["CAP_SYS_ADMIN"]}`, []string{
			`spec.parameters.allowedCapabilities: Invalid value: ["CAP_SYS_ADMIN"]: must be a list of capabilities in upper case without CAP_, such as SYS_ADMIN`,
		}},
		"a name that is not there": {"core.limits", `{"minimumGrace": 5}`, []string{
			`spec.parameters.minimumGrace: Invalid value: 5: there is no such parameter; core.limits takes maximumGraceSeconds, maximumGraceSecondsOnGPUNodes, minimumGraceSeconds, schedulingGates`,
		}},
		"a policy that takes none": {"core.gpu", `{"a": {"b": 1}}`, []string{
			`spec.parameters.a: Invalid value: {"b":1}: there is no such parameter; core.gpu takes none`,
		}},
		"no object":      {"core.limits", `[1]`, []string{`spec.parameters: Invalid value: [1]: must be a JSON object`}},
		"null instead":   {"core.limits", `null`, []string{`spec.parameters: Invalid value: null: must be a JSON object`}},
		"half an object": {"core.limits", `{"a": `, []string{`spec.parameters: Invalid value: not JSON: must be a JSON object`}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(example.want, policies.ValidateParameters(example.policy, []byte(example.set))); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateParametersAbbreviatesLongValues(t *testing.T) {
	faults := policies.ValidateParameters("core.limits", []byte(`{"minimumGraceSeconds": "`+strings.Repeat("ä", 5000)+`"}`))
	if len(faults) != 1 || len(faults[0]) > 300 {
		t.Errorf("%d faults, the first of %d bytes", len(faults), len(faults[0]))
	}
}

func TestDefaultParametersAreValid(t *testing.T) {
	for _, policy := range slices.Sorted(maps.Keys(policies.ParameterTable)) {
		if faults := policies.ValidateParameters(policy, policies.DefaultParameters(policy)); faults != nil {
			t.Errorf("%s: %q", policy, faults)
		}
	}
	if defaults := policies.DefaultParameters("core.gpu"); defaults != nil {
		t.Errorf("core.gpu, which takes none, has %s", defaults)
	}
}
