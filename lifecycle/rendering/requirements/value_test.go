// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kueueDocument is what encoding/json makes of a text, with a configuration in it as
// ConfigMaps have them.
func kueueDocument(tb testing.TB, config string) map[string]any {
	tb.Helper()
	raw, err := json.Marshal(map[string]any{"data": map[string]any{"config.yaml": config}})
	if err != nil {
		tb.Fatal(err)
	}
	var value map[string]any
	if err := json.Unmarshal(raw, &value); err != nil {
		tb.Fatal(err)
	}
	return value
}

const kueueManagerConfig = `apiVersion: config.kueue.x-k8s.io/v1beta2
fairSharing:
  preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]
  weight: 1.0
resources: &resources
  excludeResourcePrefixes: [cpu, memory, nvidia.com/]
copied:
  <<: *resources
  more: yes
inner: |
  a: {b: "c: {d: 7}"}
1: one
-7: {0x10: hex}
true: truth
2.5: half
null: nothing
empty:
none: null
blank: ""
list: [[a, b], {k: v}]
dotted.key/with: x
text: just words
`

func TestFindFollowsListsAndEmbeddedYAML(t *testing.T) {
	for _, tt := range []struct {
		path string
		want any
	}{
		{"fairSharing.preemptionStrategies.1", "LessThanInitialShare"},
		{"fairSharing.weight", 1.0},
		{"resources.excludeResourcePrefixes.2", "nvidia.com/"},
		{"copied.excludeResourcePrefixes.0", "cpu"},
		{"copied.more", true},
		{"inner.a.b.c.d", 7},
		{"1", "one"},
		{"-7.16", "hex"},
		{"true", "truth"},
		{"list.0.1", "b"},
		{"list.1.k", "v"},
		{"blank", ""},
		{"text", "just words"},
		// These do not exist.
		{"fairSharing.enable", nil},
		{"empty", nil},
		{"none", nil},
		{"none.x", nil},
		{"null", nil},
		{"text.x", nil},
		{"text.0", nil},
		{"list.2", nil},
		{"list.-1", nil},
		{"list.00", nil},
		{"list.+1", nil},
		{"list.x", nil},
		{"list.0.0.0", nil},
		{"list.99999999999999999999", nil},
		{"fairSharing.weight.0", nil},
		{"blank.x", nil},
		{"FairSharing", nil},
	} {
		value, found, err := Find(kueueDocument(t, kueueManagerConfig), append([]string{"data", "config.yaml"}, strings.Split(tt.path, ".")...))
		if diff := cmp.Diff(tt.want, value); diff != "" || found != (tt.want != nil) || err != nil {
			t.Errorf("%s: found %v, %v (-want +got):\n%s", tt.path, found, err, diff)
		}
	}
	if value, found, err := Find(kueueDocument(t, kueueManagerConfig), []string{"data", "config.yaml", "dotted.key/with"}); value != "x" || !found || err != nil {
		t.Errorf("a key with dots: %v, %v, %v", value, found, err)
	}
	if _, found, err := Find(map[string]any(nil), []string{"data"}); found || err != nil {
		t.Errorf("in no document: %v, %v", found, err)
	}
}

func TestFindReportsInvalidYAML(t *testing.T) {
	for name, text := range map[string]string{
		"a tab":               "a:\n\t- b",
		"an open bracket":     "{a: [1, 2",
		"an unknown alias":    "a: *nobody",
		"a control character": "a: \x01",
		"too deep":            strings.Repeat("[", 200_000),
		"deep by indents":     nestedYAML(20_000),
		"too long":            strings.Repeat("a: b\n", maxYAMLBytes/4),
		"an alias of itself":  "a: &a {b: *a}",
	} {
		_, found, err := Find(kueueDocument(t, text), []string{"data", "config.yaml", "a"})
		if found || err == nil || !strings.HasPrefix(err.Error(), "data[config.yaml] is not YAML: ") {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
	}
	// Where the path does not lead below it, a text is only a text.
	if value, found, err := Find(kueueDocument(t, "{a: ["), []string{"data", "config.yaml"}); value != "{a: [" || !found || err != nil {
		t.Errorf("a text itself: %v, %v, %v", value, found, err)
	}
}

func nestedYAML(levels int) string {
	var b strings.Builder
	for i := range min(levels, 1500) {
		fmt.Fprintf(&b, "%*sa:\n", i, "")
	}
	return b.String() + strings.Repeat("- ", levels)
}

// A short document that expands to gigabytes needs neither their time nor their memory.
func TestFindDoesNotExpandAliases(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString("a0: &a0 " + strings.Repeat("ha", 100_000) + "\n")
	for i := range 12 {
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	laughs.WriteString("wanted: yes\n")
	document := kueueDocument(t, laughs.String())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := Find(document, []string{"data", "config.yaml", "wanted"})
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 256<<20 { // the document itself takes one MiB
		t.Errorf("it allocated %d MiB", used>>20)
	}
	if err == nil || !strings.Contains(err.Error(), "excessive aliasing") {
		t.Errorf("a billion laughs are taken: %v", err)
	}
}

// Find returns for every document and path.
func FuzzFind(f *testing.F) {
	f.Add(kueueManagerConfig, "data/config.yaml/fairSharing/weight")
	f.Add("a: {b: [1, 2]}", "data/config.yaml/a/b/1")
	f.Add("a: &a {b: *a}", "data/config.yaml/a/b")
	f.Add("? [x, y]\n: z\n? {a: b}\n: c", "data/config.yaml/[x y]")
	f.Add("a: 'b: ''c: d'''", "data/config.yaml/a/b/c")
	f.Add("!!binary aGVsbG8=", "data/config.yaml/x")
	f.Add("a: !!float 1\nb: .nan\nc: 2001-01-01\n--- \nd", "data/config.yaml/b")
	f.Fuzz(func(t *testing.T, text, path string) {
		value, found, err := Find(kueueDocument(t, text), strings.Split(path, "/"))
		if found != (value != nil) || err != nil && found {
			t.Errorf("%v, %v, %v", value, found, err)
		}
		if matchesValue(nil, value) == found {
			t.Errorf("%v is nothing, and was found", value)
		}
		if len(formatValue(value)) > 1000 {
			t.Errorf("shown as %s", formatValue(value))
		}
	})
}

func TestMatchesValue(t *testing.T) {
	yes := func(want, got any) {
		if !matchesValue(want, got) {
			t.Errorf("%v is not %v", got, want)
		}
	}
	no := func(want, got any) {
		if matchesValue(want, got) {
			t.Errorf("%v is %v", got, want)
		}
	}
	yes(nil, nil)
	yes(true, true)
	yes(int64(1), 1)
	yes(int64(1), 1.0)
	yes(0.5, 0.5)
	yes(int64(1)<<62, uint64(1)<<62)
	yes([]any{"a", int64(2)}, []any{"a", 2})
	yes(map[string]any{"a": map[string]any{"1": nil}}, map[any]any{"a": map[any]any{1: nil}})
	yes(map[string]any{}, map[string]any{})
	no(nil, "")
	no(nil, false)
	no(true, "true")
	no("1", 1)
	no(int64(1), "1")
	no(int64(0), nil)
	no(int64(1)<<62+1, float64(int64(1)<<62))
	no([]any{}, map[any]any{})
	yes([]any{"a"}, []any{"a", "b"})
	yes([]any{"a", "b"}, []any{"b", "c", "a"})
	yes([]any{}, []any{"a"})
	no([]any{"a", "b"}, []any{"a"})
	no([]any{map[string]any{"a": true}}, []any{map[any]any{"a": true, "b": true}})
	no(map[string]any{"a": nil}, map[any]any{"b": nil})
	no(map[string]any{"a": true}, map[any]any{"a": true, "b": true})
	no(map[string]any{}, nil)
}
