// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"slices"
	"testing"

	library "gomodules.xyz/jsonpatch/v2"
)

// This test shows why Diff is not gomodules.xyz/jsonpatch. A failing case means that the
// library now supports it and may replace Diff.
func TestLibraryCannotReplaceDiff(t *testing.T) {
	diff := func(before, after string) []library.Operation {
		t.Helper()
		operations, err := library.CreatePatch([]byte(before), []byte(after))
		if err != nil {
			t.Fatal(err)
		}
		return operations
	}
	t.Run("it ignores a change of a large integer", func(t *testing.T) {
		if got := diff(`{"a":9007199254740992}`, `{"a":9007199254740993}`); len(got) != 0 {
			t.Errorf("it returns %v", got)
		}
		if got := Diff(map[string]any{"a": int64(9007199254740992)}, map[string]any{"a": int64(9007199254740993)}); len(got) != 1 {
			t.Errorf("Diff returns %v", got)
		}
	})
	t.Run("it changes a large integer", func(t *testing.T) {
		if got := diff(`{"a":1}`, `{"a":9007199254740995}`); got[0].Json() != `{"op":"replace","path":"/a","value":9007199254740996}` {
			t.Errorf("it returns %v", got)
		}
	})
	t.Run("it rewrites all elements behind a removed one", func(t *testing.T) {
		before, after := `[{"a":1},{"a":2},{"a":3},{"a":4}]`, `[{"a":2},{"a":3},{"a":4}]`
		if got := diff(before, after); len(got) != 4 {
			t.Errorf("it returns %v", got)
		}
		if got := Diff(decode(t, before), decode(t, after)); len(got) != 1 {
			t.Errorf("Diff returns %v", got)
		}
	})
}

// hostileKeys are keys that a JSON pointer escapes, or that look like escaped ones.
var hostileKeys = []string{"", "/", "~", "~0", "~1", "~01", "a/b~c", "//", "0", "-", "\"", "\\", "é", "\u2028", "$patch"}

func TestDiffGivesTheSameBytesEachTime(t *testing.T) {
	build := func(offset int64) map[string]any {
		inner := map[string]any{"list": []any{}}
		for i, key := range hostileKeys {
			inner[key] = int64(i) + offset
			inner[key+"/only"+string(rune('a'+offset))] = map[string]any{key: []any{int64(i), offset}}
			inner["list"] = append(inner["list"].([]any), map[string]any{key: offset * int64(i%3)})
		}
		return map[string]any{"metadata": map[string]any{"annotations": inner}, "spec": inner}
	}
	var first []byte
	for range 1000 {
		written, err := json.Marshal(Diff(build(0), build(1)))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = written
			assertApplies(t, build(0), build(1), written)
		}
		if !slices.Equal(first, written) {
			t.Fatalf("two runs differ:\n%s\n%s", first, written)
		}
	}
}
