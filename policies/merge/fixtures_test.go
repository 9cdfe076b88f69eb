// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"sluice.dev/policies/merge/schema"
)

// changesYAML are the changes of one policy as a test writes them.
type changesYAML struct {
	Policy    string                           `json:"policy"`
	Defaults  map[string]any                   `json:"defaults"`
	Overrides map[string]any                   `json:"overrides"`
	Nodes     []corev1.NodeSelectorRequirement `json:"nodes"`
	Append    []struct {
		Path  []any `json:"path"`
		Value any   `json:"value"`
	} `json:"append"`
	Remove [][]any `json:"remove"`
}

func (w changesYAML) toChanges() DesiredChanges {
	in := DesiredChanges{Policy: w.Policy, Defaults: w.Defaults, Overrides: w.Overrides, Nodes: w.Nodes}
	for _, a := range w.Append {
		in.Append = append(in.Append, Addition{Path: a.Path, Value: a.Value})
	}
	for _, path := range w.Remove {
		in.Remove = append(in.Remove, path)
	}
	return in
}

// mergeCase is one object, the changes of policies, and the result.
type mergeCase struct {
	name string
	// object is the pod's spec, or the whole pod if it begins with "metadata:".
	object string
	// policies are changes as YAML. A policy without a name is called a, b, c by its
	// position.
	policies []string
	// want is the resulting spec, or the whole pod if object is; empty if nothing
	// changes.
	want string
	// warnings and changes are the expected ones.
	warnings []string
	changes  map[string][]string
	// err is the expected error; the other expectations are then unused.
	err string
}

func decodeYAML[T any](t testing.TB, text string) T {
	t.Helper()
	var into T
	if err := yaml.UnmarshalStrict([]byte(text), &into); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return into
}

func (e mergeCase) objectOf(t testing.TB, text string) map[string]any {
	t.Helper()
	if strings.HasPrefix(strings.TrimSpace(e.object), "metadata:") {
		return decodeYAML[map[string]any](t, text)
	}
	return map[string]any{"spec": any(decodeYAML[map[string]any](t, text))}
}

func (e mergeCase) desiredChanges(t testing.TB) []DesiredChanges {
	t.Helper()
	var desired []DesiredChanges
	for i, text := range e.policies {
		w := decodeYAML[changesYAML](t, text)
		if w.Policy == "" {
			w.Policy = string(rune('a' + i))
		}
		desired = append(desired, w.toChanges())
	}
	return desired
}

// runCases runs the cases and checks the invariants of each.
func runCases(t *testing.T, examples []mergeCase) {
	t.Helper()
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			object, desired := e.objectOf(t, e.object), e.desiredChanges(t)
			got, err := Apply(object, desired, schema.ClusterDefaults{})
			if e.err != "" {
				if err == nil {
					t.Fatalf("no error; object is\n%s", marshal(t, got.Object))
				}
				if diff := cmp.Diff(e.err, err.Error()); diff != "" {
					t.Errorf("error (-want +got):\n%s", diff)
				}
				requireInvariants(t, object, desired)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := e.want
			if want == "" {
				want = e.object
			}
			if diff := cmp.Diff(e.objectOf(t, want), decodeYAML[map[string]any](t, marshal(t, got.Object))); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			var warnings []string
			for _, w := range got.Warnings {
				warnings = append(warnings, w.String())
			}
			if diff := cmp.Diff(e.warnings, warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if e.changes != nil {
				if diff := cmp.Diff(e.changes, got.ChangedPaths); diff != "" {
					t.Errorf("changes (-want +got):\n%s", diff)
				}
			}
			requireInvariants(t, object, desired)
		})
	}
}

// testingT is a *testing.T or a *rapid.T.
type testingT interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// requireInvariants checks what holds for every object and all changes: the input is not
// modified, a second time changes nothing, the order does not matter, and the patch turns
// the object into the result.
func requireInvariants(t testingT, object map[string]any, desired []DesiredChanges) {
	t.Helper()
	before := marshal(t, object) + marshal(t, desired)
	got, err := Apply(object, desired, schema.ClusterDefaults{})
	if after := marshal(t, object) + marshal(t, desired); before != after {
		t.Errorf("the input was changed:\n%s", cmp.Diff(before, after))
	}
	for range desired {
		desired = append(desired[1:len(desired):len(desired)], desired[0])
		for _, reordered := range [][]DesiredChanges{desired, reversed(desired)} {
			other, otherErr := Apply(object, reordered, schema.ClusterDefaults{})
			if diff := cmp.Diff(errorText(err), errorText(otherErr)); diff != "" {
				t.Errorf("another order has another error (-one +other):\n%s", diff)
			}
			if diff := cmp.Diff(marshal(t, got), marshal(t, other)); diff != "" {
				t.Errorf("another order has another result (-one +other):\n%s", diff)
			}
		}
	}
	if err != nil {
		return
	}
	again, err := Apply(got.Object, desired, schema.ClusterDefaults{})
	if err != nil {
		t.Fatalf("a second time: %v\nobject: %s\nwas: %s\nintents: %s", err, marshal(t, got.Object), marshal(t, object), marshal(t, desired))
	}
	if diff := cmp.Diff(marshal(t, got.Object), marshal(t, again.Object)); diff != "" {
		t.Errorf("a second time changes the object (-once +twice):\n%s", diff)
	}
	if len(again.ChangedPaths)+len(again.Warnings) > 0 {
		t.Errorf("a second time changes %v and warns %v\nobject: %s\nwas: %s\nintents: %s", again.ChangedPaths, again.Warnings, marshal(t, got.Object), marshal(t, object), marshal(t, desired))
	}
	requirePatch(t, object, got)
}

func reversed(desired []DesiredChanges) []DesiredChanges {
	reordered := slices.Clone(desired)
	slices.Reverse(reordered)
	return reordered
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// requirePatch checks that the patch gives the result.
func requirePatch(t testingT, object map[string]any, got Result) {
	t.Helper()
	patch, err := got.Patch()
	if err != nil {
		t.Fatalf("patch: %v", err)
	}
	if patch == nil {
		if marshal(t, object) != marshal(t, got.Object) {
			t.Errorf("no patch, though %s became %s", marshal(t, object), marshal(t, got.Object))
		}
		return
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil || len(decoded) == 0 {
		t.Fatalf("patch %s: %v", patch, err)
	}
	applied, err := decoded.Apply([]byte(marshal(t, object)))
	if err != nil {
		t.Fatalf("patch %s does not apply: %v", patch, err)
	}
	var have, want any
	if err := json.Unmarshal(applied, &have); err != nil {
		t.Fatalf("%v", err)
	}
	if err := json.Unmarshal([]byte(marshal(t, got.Object)), &want); err != nil {
		t.Fatalf("%v", err)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("patch %s gives another object (-want +got):\n%s", patch, diff)
	}
}

func marshal(t testingT, v any) string {
	t.Helper()
	written, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(written)
}

// The invariants hold for generated pods and changes.
func TestInvariants(t *testing.T) {
	done, conflicts, faults := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		object := generatePod(t)
		var desired []DesiredChanges
		for i := range rapid.IntRange(1, 3).Draw(t, "policies") {
			desired = append(desired, generateChanges(t, string(rune('a'+i))))
		}
		requireInvariants(t, object, desired)
		_, err := Apply(object, desired, schema.ClusterDefaults{})
		var conflict *ConflictError
		switch {
		case err == nil:
			done++
		case errors.As(err, &conflict):
			conflicts++
		default:
			faults++
		}
	})
	t.Logf("%d applied, %d in conflict, %d invalid", done, conflicts, faults)
	if done < (done+conflicts+faults)/4 {
		t.Error("too few changes can be applied")
	}
}
