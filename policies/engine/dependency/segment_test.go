// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
)

func compile(t *testing.T, rego string) *ast.Compiler {
	t.Helper()
	module, err := ast.ParseModuleWithOpts("test", "package test\n"+rego+"\n", ast.ParserOptions{RegoVersion: ast.RegoV1})
	if err != nil {
		t.Fatal(err)
	}
	opa := ast.NewCompiler()
	if opa.Compile(map[string]*ast.Module{"test": module}); opa.Failed() {
		t.Fatal(opa.Errors)
	}
	return opa
}

var denyRef = []ast.Ref{ast.MustParseRef("data.test.deny")}

// describe returns a segment as its path, a space and what is read there: * is all of it, ?
// its presence, [] each element, .x{} a field.
func describe(s Segment) string {
	var b strings.Builder
	s.reads.writeSignature(&b)
	return strings.Join(s.Path, ".") + " " + b.String()
}

func TestSegments(t *testing.T) {
	tests := map[string]struct {
		rego string
		want []string
		all  bool
	}{
		"a constant path":           {rego: `deny contains "x" if input.object.kind == "Pod"`, want: []string{"object.kind *"}},
		"presence":                  {rego: `deny contains "x" if input.object.spec.hostPID`, want: []string{"object.spec.hostPID ?"}},
		"a field of each element":   {rego: `deny contains "x" if input.object.list[_].a == 1`, want: []string{`object.list ?[."a"{*}]`}},
		"a variable key":            {rego: `deny contains k if { some k; input.project[k] == 1 }`, want: []string{"project ?[*]"}},
		"a function":                {rego: "deny contains \"x\" if f(input.object)\nf(o) if o.a.b == 1", want: []string{"object ?", "object.a.b *"}},
		"a whole part":              {rego: `deny contains json.marshal(input.workload)`, want: []string{"workload *"}},
		"parameters are left out":   {rego: `deny contains "x" if input.parameters.a == input.now`, want: []string{"now *"}},
		"no input":                  {rego: `deny contains "x"`},
		"all of input":              {rego: `deny contains json.marshal(input)`, all: true},
		"a variable field of input": {rego: `deny contains "x" if input[_].a`, all: true},
		"input is replaced":         {rego: "deny contains \"x\" if a with input as {\"b\": input.object}\na if input.b", all: true},
		"data is no input":          {rego: `deny contains "x" if input.object.a == data.config.b.c`, want: []string{"object.a *"}},
		"a key of data is read":     {rego: `deny contains "x" if data.objects.A[input.object.b]`, want: []string{"object.b *"}},
		"a key from data":           {rego: `deny contains "x" if input.object.a[data.config.b.c] == 1`, want: []string{"object.a ?[*]"}},
		"each element of data":      {rego: `deny contains "x" if { some x in data.config.b; input.object.a == x }`, want: []string{"object.a *"}},
		"untraceable: all that it names": {
			rego: "deny contains \"x\" if f(1) with f as g\nf(_) := input.object.a\ng(_) := input.project.b", want: []string{"object.a *", "project.b *"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			segments, ok := Segments(compile(t, tt.rego), denyRef)
			if ok == tt.all {
				t.Fatalf("ok is %v, segments are %v", ok, segments)
			}
			var got []string
			for _, segment := range segments {
				got = append(got, describe(segment))
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("segments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFootprint(t *testing.T) {
	footprint := NewFootprint(compile(t, "deny contains \"x\" if f(input.object.spec)\nf(_) if input.project.a[_].b\ndeny contains \"y\" if input.object.spec.x"), denyRef)
	for path, want := range map[string]bool{
		"object": true, "object.spec": true, "object.spec.x.y": true, "object.metadata": false,
		"project.a.0.b": true, "project.b": false, "department": false, "object.spec.1.2.3.4.5.6.7.8": true,
	} {
		if got := footprint.Overlaps(strings.Split(path, ".")); got != want {
			t.Errorf("Overlaps(%s) is %v", path, got)
		}
	}
}

func TestKeysDifferWhereReadsDiffer(t *testing.T) {
	segment := func(rego, path string) Segment {
		segments, ok := Segments(compile(t, rego), denyRef)
		i := slices.IndexFunc(segments, func(s Segment) bool { return strings.Join(s.Path, ".") == path })
		if !ok || i < 0 {
			t.Fatalf("no segment %s in %v", path, segments)
		}
		return segments[i]
	}
	each := segment(`deny contains "x" if input.object.list[_].a == 1`, "object.list")
	whole := segment(`deny contains json.marshal(input.object.list)`, "object.list")
	present := segment(`deny contains "x" if input.object.list`, "object.list")
	tests := map[string]struct {
		segment Segment
		a, b    string
		equal   bool
	}{
		"an unread field":          {each, `[{"a": 1, "b": 1}]`, `[{"a": 1, "b": 2}]`, true},
		"a read field":             {each, `[{"a": 1}]`, `[{"a": 2}]`, false},
		"null and absent":          {each, `[{"a": null}]`, `[{}]`, false},
		"the number of elements":   {each, `[{"a": 1}]`, `[{"a": 1}, {"a": 1}]`, false},
		"a number and its text":    {whole, `[1]`, `["1"]`, false},
		"texts split elsewhere":    {whole, `["ab", "c"]`, `["a", "bc"]`, false},
		"a key and its value":      {whole, `{"a": "b"}`, `{"b": "a"}`, false},
		"values, if only present":  {present, `[1]`, `[2, 3]`, true},
		"types, if only present":   {present, `[1]`, `{}`, false},
		"false and true":           {present, `false`, `true`, false},
		"absent, if only present":  {present, ``, `null`, false},
		"lists nested differently": {whole, `[[1], 2]`, `[[1, 2]]`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			key := func(text string) string {
				var value any = Absent{}
				if text != "" {
					if err := json.Unmarshal([]byte(text), &value); err != nil {
						t.Fatal(err)
					}
				}
				return string(tt.segment.AppendKey(nil, value))
			}
			if a, b := key(tt.a), key(tt.b); (a == b) != tt.equal {
				t.Errorf("the keys are %q and %q", a, b)
			}
		})
	}
}

func TestCollectData(t *testing.T) {
	tests := map[string]struct {
		rego string
		want []string
	}{
		"a key":                {`deny contains "x" if data.config.a.b.c`, []string{"config.a.b.c whole"}},
		"a variable name":      {`deny contains "x" if data.config[input.object.a]`, []string{"config"}},
		"all":                  {`deny contains "x" if data.config`, []string{"config whole"}},
		"through a function":   {"deny contains \"x\" if f(1)\nf(_) := data.objects.A", []string{"objects.A whole"}},
		"under with and not":   {`deny contains "x" if { not data.config.a; data.config.b with data.config.c as 1 }`, []string{"config.a whole", "config.b whole", "config.c whole"}},
		"in a comprehension":   {`deny contains "x" if count([y | y := data.config.a[_]]) > 1`, []string{"config.a"}},
		"in an else":           {"deny contains \"x\" if f(1)\nf(x) if x == 2 else := data.config.a", []string{"config.a whole"}},
		"in a default":         {"deny contains \"x\" if a\na if data.objects.A.b", []string{"objects.A.b whole"}},
		"of a rule not used":   {"deny contains \"x\"\na if data.config.a", nil},
		"no data of this kind": {`deny contains data.test.a`, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, read := range CollectData(compile(t, tt.rego), denyRef[0]) {
				text := strings.Join(read.Path, ".")
				if read.IsWhole {
					text += " whole"
				}
				got = append(got, text)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, slices.Compact(got)); diff != "" {
				t.Errorf("reads (-want +got):\n%s", diff)
			}
		})
	}
}
