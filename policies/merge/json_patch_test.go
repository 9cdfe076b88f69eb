// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice.dev/policies/merge/schema"
)

func TestDiff(t *testing.T) {
	tests := []struct{ name, before, after, want string }{
		{"no change", `{"a":{"b":[1]}}`, `{"a":{"b":[1.0]}}`, `null`},
		{"keys of an object", `{"a":1,"b":2,"c":3}`, `{"a":1,"b":4,"d":5}`, `[
			{"op":"replace","path":"/b","value":4},
			{"op":"remove","path":"/c"},
			{"op":"add","path":"/d","value":5}]`},
		{"null is a value", `{"a":1}`, `{"a":null,"b":null}`, `[
			{"op":"replace","path":"/a","value":null},
			{"op":"add","path":"/b","value":null}]`},
		{"keys are escaped", `{"l":{}}`, `{"l":{"sluice.dev/a~b":"c"}}`, `[
			{"op":"add","path":"/l/sluice.dev~1a~0b","value":"c"}]`},
		{"one element from the middle", `[1,2,3,4]`, `[1,3,4]`, `[{"op":"remove","path":"/1"}]`},
		{"two elements from the middle", `[1,2,3,4,5]`, `[1,3,5]`, `[
			{"op":"remove","path":"/1"},
			{"op":"remove","path":"/2"}]`},
		{"one element changed and one added", `["a",{"b":1},"c"]`, `["a",{"b":2},"c","d"]`, `[
			{"op":"replace","path":"/1/b","value":2},
			{"op":"add","path":"/3","value":"d"}]`},
		{"one element removed before a changed one", `["a","b",{"c":1},"d"]`, `["b",{"c":2},"d"]`, `[
			{"op":"remove","path":"/0"},
			{"op":"replace","path":"/1/c","value":2}]`},
		{"all elements removed", `[1,2]`, `[]`, `[
			{"op":"remove","path":"/0"},
			{"op":"remove","path":"/0"}]`},
		{"another type", `{"a":[]}`, `{"a":{}}`, `[{"op":"replace","path":"/a","value":{}}]`},
		{"the whole document", `1`, `2`, `[{"op":"replace","path":"","value":2}]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			written, err := json.Marshal(Diff(decode(t, tt.before), decode(t, tt.after)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decode(t, tt.want), decode(t, string(written))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The patch applied to the old document gives the new one.
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
		assertApplies(t, before, after, written)
	})
}

// tester is a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func decode(t tester, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// assertApplies applies a patch with another library, and compares the result.
func assertApplies(t tester, before, after any, patch []byte) {
	t.Helper()
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	applied, err := decoded.Apply(document)
	if err != nil {
		t.Fatalf("%s does not apply to %s: %v", patch, document, err)
	}
	if !schema.Equal(after, decode(t, string(applied))) {
		t.Fatalf("%s applied to %s gives %s", patch, document, applied)
	}
}

// anyJSON generates JSON with few keys and values, so that two documents are often alike.
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

// Diff compares long lists in order; the patch is longer, and correct.
func TestDiffOfLongLists(t *testing.T) {
	var before, after []any
	for i := range 1000 {
		before = append(before, map[string]any{"i": int64(i)})
		if i%2 == 1 {
			after = append(after, map[string]any{"i": int64(i)})
		}
	}
	written, err := json.Marshal(Diff(before, after))
	if err != nil {
		t.Fatal(err)
	}
	assertApplies(t, before, after, written)
}
