// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/workload/kinds"
)

func TestATemplateThatNamesItsNodeIsWarnedOf(t *testing.T) {
	of := func(spec any) kinds.Template {
		return kinds.Template{Place: "spec.template", Body: map[string]any{"spec": spec}}
	}
	for name, tc := range map[string]struct {
		template kinds.Template
		want     []string
	}{
		"a node":       {of(map[string]any{"nodeName": "dgx-1"}), []string{"dgx-1: a pod of a project does not choose its node, and these will be refused"}},
		"an empty one": {of(map[string]any{"nodeName": ""}), nil},
		"none":         {of(map[string]any{}), nil},
		"no text":      {of(map[string]any{"nodeName": 1}), nil},
		"no spec":      {of(nil), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var said []string
			for _, complaint := range chosenNode(tc.template) {
				said = append(said, complaint.Message)
			}
			if diff := cmp.Diff(tc.want, said); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
