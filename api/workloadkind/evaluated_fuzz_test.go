// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/workloadkind"
)

// Any object of any kind, with any path, is read within limits, twice with the same result, and is not changed.
func FuzzEvaluatedTemplates(f *testing.F) {
	for _, seed := range []struct{ path, object string }{
		{"spec.template", `{"spec":{"template":{"spec":{}}}}`},
		{"spec.workers[*].template", `{"spec":{"workers":[{"template":{}},null,7,[]],"template":{"spec":{"containers":[{}]}}}}`},
		{"spec.a[*].b[*].c", `{"spec":{"a":{"x":{"b":[{"c":{}}]},"":null},"templates":[{"container":{"image":"{{x}}"}},{"script":{}},{"containerSet":{"containers":[7]}}]}}`},
		{"spec", `{"metadata":7,"spec":{"predictor":{"containers":[null,{"name":7}],"labels":[],"annotations":{"a":1}}}}`},
		{"spec.x\x00", `{"spec":[]}`},
		{strings.Repeat("spec.a[*].", 30), `[]`},
	} {
		f.Add(seed.path, []byte(seed.object))
	}
	kinds := workloadkind.EvaluatedKinds()
	f.Fuzz(func(t *testing.T, path string, raw []byte) {
		var object map[string]any
		if json.Unmarshal(raw, &object) != nil {
			return
		}
		parsed, err := workloadkind.ParseTemplatePath(path)
		if err == nil && strings.Join(parsed, ".") != strings.ReplaceAll(path, "[*]", ".*") {
			t.Errorf("%q has the segments %q", path, parsed)
		}
		added := addedTrainer(path)
		if (err == nil) != (len(added) == 1) {
			t.Errorf("%q: %v, and %d kinds are added", path, err, len(added))
		}
		for i := range len(kinds) + 1 {
			kind := trainer
			if i < len(kinds) {
				kind = kinds[i].GroupKind
			}
			found := workloadkind.EvaluatedTemplates(kind, object, added)
			if len(found) > workloadkind.MaxTemplates {
				t.Errorf("%s: %d templates", kind, len(found))
			}
			again := workloadkind.EvaluatedTemplates(kind, object, added)
			bodies := map[string]map[string]any{}
			for j, template := range found {
				if again[j].Path != template.Path || !cmp.Equal(again[j].Body, template.Body) {
					t.Errorf("%s: template %d differs the second time", kind, j)
				}
				if field := template.Field("spec.containers[0].image"); !strings.Contains(field, ".") {
					t.Errorf("%s: the field %q of %s", kind, field, template.Path)
				}
				bodies[template.Path] = template.Body
			}
			if after := workloadkind.WithTemplates(kind, object, bodies); !cmp.Equal(after, object) {
				t.Errorf("%s: the object with its own templates differs:\n%s", kind, cmp.Diff(object, after))
			}
		}
		var before map[string]any
		if err := json.Unmarshal(raw, &before); err != nil || !cmp.Equal(before, object) {
			t.Errorf("the object was changed: %v\n%s", err, cmp.Diff(before, object))
		}
	})
}
