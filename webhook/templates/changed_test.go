// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"testing"

	"sluice.dev/api/workload/kinds"
)

func TestOnlyWhatChangedIsJudged(t *testing.T) {
	of := func(image string) []kinds.Template {
		return []kinds.Template{{Place: "spec.template", Body: map[string]any{"spec": map[string]any{"image": image}}}}
	}
	if left := changed(of("a"), of("a")); len(left) != 0 {
		t.Errorf("unchanged, and judged: %v", left)
	}
	if left := changed(of("b"), of("a")); len(left) != 1 {
		t.Error("changed, and not judged")
	}
	if left := changed(of("a"), nil); len(left) != 1 {
		t.Error("new, and not judged")
	}
}
