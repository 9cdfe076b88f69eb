// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
)

func TestLoosened(t *testing.T) {
	const all = `{train: {maxRuntime: 48h, idleTimeout: 2h, clock: Running, resetAfter: 2h, dryRun: false}}`
	for _, tc := range []struct {
		name, before, after string
		want                []v1alpha1.Loosening
	}{
		{name: "nothing said"},
		{name: "as before, otherwise written", before: all, after: `{train: {maxRuntime: 2d, idleTimeout: 120m, clock: Running, resetAfter: 120m, dryRun: false}}`},
		{name: "where nothing was, anything is tighter", after: all},
		{name: "tighter in everything", before: all, after: `{train: {maxRuntime: 24h, idleTimeout: 1h, clock: Running, resetAfter: 3h, dryRun: false}}`},
		{name: "what never bound", before: `{train: {clock: Active, dryRun: true}}`},
		{
			name: "looser in everything", before: all,
			after: `{train: {maxRuntime: 49h, idleTimeout: 3h, clock: Active, resetAfter: 1h, dryRun: true}}`,
			want: []v1alpha1.Loosening{
				{Type: "train", Field: "maxRuntime", Value: "49h", Bound: "48h"},
				{Type: "train", Field: "idleTimeout", Value: "3h", Bound: "2h"},
				{Type: "train", Field: "clock", Value: "Active", Bound: "Running"},
				{Type: "train", Field: "resetAfter", Value: "1h", Bound: "2h"},
				{Type: "train", Field: "dryRun", Value: "true", Bound: "false"},
			},
		},
		{
			name: "taken away", before: all,
			want: []v1alpha1.Loosening{
				{Type: "train", Field: "maxRuntime", Bound: "48h"},
				{Type: "train", Field: "idleTimeout", Bound: "2h"},
				{Type: "train", Field: "clock", Bound: "Running"},
				{Type: "train", Field: "resetAfter", Bound: "2h"},
				{Type: "train", Field: "dryRun", Bound: "false"},
			},
		},
		{
			name: "a type comes out of the limit for all", before: `{"*": {maxRuntime: 10h}}`, after: `{"*": {maxRuntime: 10h}, train: {maxRuntime: 11h}}`,
			want: []v1alpha1.Loosening{{Type: "train", Field: "maxRuntime", Value: "11h", Bound: "10h"}},
		},
		{
			name: "a type comes under the limit for all", before: `{"*": {maxRuntime: 10h}, train: {maxRuntime: 9h}}`, after: `{"*": {maxRuntime: 10h}}`,
			want: []v1alpha1.Loosening{{Type: "train", Field: "maxRuntime", Value: "10h", Bound: "9h"}},
		},
		{
			name: "the limit for all, where a type has its own", before: `{"*": {maxRuntime: 10h}, train: {maxRuntime: 9h}, inference: {maxRuntime: 9h}}`,
			after: `{train: {maxRuntime: 9h}, inference: {maxRuntime: 9h}}`,
			want:  []v1alpha1.Loosening{{Type: "interactive", Field: "maxRuntime", Bound: "10h"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := v1alpha1.Loosened(parse(t, tc.before), parse(t, tc.after))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
