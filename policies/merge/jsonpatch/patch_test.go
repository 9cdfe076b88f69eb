// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonpatch

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice.dev/policies/merge/schema"
)

func TestDiff(t *testing.T) {
	tests := []struct{ name, before, after, want string }{
		{"nothing", `{"a":{"b":[1]}}`, `{"a":{"b":[1.0]}}`, `null`},
		{"a map's", `{"a":1,"b":2,"c":3}`, `{"a":1,"b":4,"d":5}`, `[
			{"op":"replace","path":"/b","value":4},
			{"op":"remove","path":"/c"},
			{"op":"add","path":"/d","value":5}]`},
		{"null is a value", `{"a":1}`, `{"a":null,"b":null}`, `[
			{"op":"replace","path":"/a","value":null},
			{"op":"add","path":"/b","value":null}]`},
		{"keys are escaped", `{"l":{}}`, `{"l":{"sluice.dev/a~b":"c"}}`, `[
			{"op":"add","path":"/l/sluice.dev~1a~0b","value":"c"}]`},
		{"one of the middle", `[1,2,3,4]`, `[1,3,4]`, `[{"op":"remove","path":"/1"}]`},
		{"two of the middle", `[1,2,3,4,5]`, `[1,3,5]`, `[
			{"op":"remove","path":"/1"},
			{"op":"remove","path":"/2"}]`},
		{"one changed and one added", `["a",{"b":1},"c"]`, `["a",{"b":2},"c","d"]`, `[
			{"op":"replace","path":"/1/b","value":2},
			{"op":"add","path":"/3","value":"d"}]`},
		{"one taken out before one that changed", `["a","b",{"c":1},"d"]`, `["b",{"c":2},"d"]`, `[
			{"op":"remove","path":"/0"},
			{"op":"replace","path":"/1/c","value":2}]`},
		{"all taken out", `[1,2]`, `[]`, `[
			{"op":"remove","path":"/0"},
			{"op":"remove","path":"/0"}]`},
		{"another form", `{"a":[]}`, `{"a":{}}`, `[{"op":"replace","path":"/a","value":{}}]`},
		{"all of it", `1`, `2`, `[{"op":"replace","path":"","value":2}]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var before, after, want any
			for text, into := range map[string]*any{tt.before: &before, tt.after: &after, tt.want: &want} {
				if err := json.Unmarshal([]byte(text), into); err != nil {
					t.Fatal(err)
				}
			}
			written, err := json.Marshal(Diff(before, after))
			if err != nil {
				t.Fatal(err)
			}
			var got any
			if err := json.Unmarshal(written, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Applied to what was, the patch gives what is.
func TestDiffApplies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := map[string]any{"v": anyJSON(3).Draw(t, "before")}
		after := map[string]any{"v": anyJSON(3).Draw(t, "after")}
		operations := Diff(before, after)
		if schema.Equal(before, after) != (len(operations) == 0) {
			t.Fatalf("%v to %v: %v", before, after, operations)
		}
		if len(operations) == 0 {
			return
		}
		written, err := json.Marshal(operations)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := jsonpatch.DecodePatch(written)
		if err != nil {
			t.Fatal(err)
		}
		document, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		applied, err := decoded.Apply(document)
		if err != nil {
			t.Fatalf("%s does not apply to %s: %v", written, document, err)
		}
		var got any
		if err := json.Unmarshal(applied, &got); err != nil {
			t.Fatal(err)
		}
		if !schema.Equal(after, got) {
			t.Fatalf("%s applied to %s gives %s", written, document, applied)
		}
	})
}

// anyJSON is JSON of a few keys and values, so that two are often alike.
func anyJSON(depth int) *rapid.Generator[any] {
	scalars := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Just[any](true),
		rapid.Map(rapid.Int64Range(0, 3), func(i int64) any { return i }),
		rapid.Map(rapid.SampledFrom([]string{"", "a", "b/c", "~"}), func(s string) any { return s }),
	)
	if depth == 0 {
		return scalars
	}
	inner := rapid.Deferred(func() *rapid.Generator[any] { return anyJSON(depth - 1) })
	return rapid.OneOf(
		scalars,
		rapid.Map(rapid.SliceOfN(inner, 0, 6), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.SampledFrom([]string{"a", "b/c", "~", "~1"}), inner, 0, 4), func(m map[string]any) any { return m }),
	)
}

// Long lists are compared in order, and the patch is as right.
func TestDiffOfLongLists(t *testing.T) {
	var before, after []any
	for i := range 1000 {
		before = append(before, map[string]any{"i": int64(i)})
		if i%2 == 1 {
			after = append(after, map[string]any{"i": int64(i)})
		}
	}
	operations := Diff(before, after)
	written, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := jsonpatch.DecodePatch(written)
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	applied, err := decoded.Apply(document)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(after)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), strings.TrimSpace(string(applied))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
