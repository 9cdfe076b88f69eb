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
