// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/workloadkind"
)

func TestChangedTemplates(t *testing.T) {
	of := func(image string) []workloadkind.Template {
		return []workloadkind.Template{{Path: "spec.template", Body: map[string]any{"spec": map[string]any{"image": image}}}}
	}
	if left := changedTemplates(of("a"), of("a")); len(left) != 0 {
		t.Errorf("an unchanged template is evaluated: %v", left)
	}
	if left := changedTemplates(of("b"), of("a")); len(left) != 1 {
		t.Error("a changed template is not evaluated")
	}
	if left := changedTemplates(of("a"), nil); len(left) != 1 {
		t.Error("a new template is not evaluated")
	}
}

func TestWarnNodeName(t *testing.T) {
	of := func(spec any) workloadkind.Template {
		return workloadkind.Template{Path: "spec.template", Body: map[string]any{"spec": spec}}
	}
	for name, tc := range map[string]struct {
		template workloadkind.Template
		want     []string
	}{
		"a node name":  {of(map[string]any{"nodeName": "dgx-1"}), []string{"dgx-1: a pod of a project does not choose its node, and these pods will be denied"}},
		"an empty one": {of(map[string]any{"nodeName": ""}), nil},
		"none":         {of(map[string]any{}), nil},
		"not a string": {of(map[string]any{"nodeName": 1}), nil},
		"no spec":      {of(nil), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var messages []string
			for _, finding := range warnNodeName(tc.template) {
				messages = append(messages, finding.Message)
			}
			if diff := cmp.Diff(tc.want, messages); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
