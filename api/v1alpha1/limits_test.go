// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

type limitsByType = map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits

func TestFindLimitsAboveDepartment(t *testing.T) {
	for _, tc := range []struct {
		name                string
		department, project string
		want                []v1alpha1.LooseLimit
	}{
		{name: "nothing said"},
		{
			name:       "as the department",
			department: `{"*": {maxRuntime: 48h, idleTimeout: 2h, clock: Running, resetAfter: 1h, dryRun: false}}`,
			project:    `{"*": {maxRuntime: 2d, idleTimeout: 120m, clock: Running, resetAfter: 60m, dryRun: false}}`,
		},
		{
			name:       "tighter in everything",
			department: `{"*": {maxRuntime: 48h, idleTimeout: 2h, clock: Active, resetAfter: 1h, dryRun: true}}`,
			project:    `{train: {maxRuntime: 24h, idleTimeout: 1h, clock: Running, resetAfter: 2h, dryRun: false}}`,
		},
		{
			name:       "looser in everything",
			department: `{train: {maxRuntime: 48h, idleTimeout: 2h, clock: Running, resetAfter: 2h, dryRun: false}}`,
			project:    `{train: {maxRuntime: 49h, idleTimeout: 3h, clock: Active, resetAfter: 1h, dryRun: true}}`,
			want: []v1alpha1.LooseLimit{
				{Type: "train", Field: "maxRuntime", Value: "49h", Bound: "48h"},
				{Type: "train", Field: "idleTimeout", Value: "3h", Bound: "2h"},
				{Type: "train", Field: "clock", Value: "Active", Bound: "Running"},
				{Type: "train", Field: "resetAfter", Value: "1h", Bound: "2h"},
				{Type: "train", Field: "dryRun", Value: "true", Bound: "false"},
			},
		},
		{
			name:       "the department's default for all types binds each",
			department: `{"*": {maxRuntime: 48h}}`,
			project:    `{inference: {maxRuntime: 72h}, interactive: {maxRuntime: 50h}}`,
			want: []v1alpha1.LooseLimit{
				{Type: "interactive", Field: "maxRuntime", Value: "50h", Bound: "48h"},
				{Type: "inference", Field: "maxRuntime", Value: "72h", Bound: "48h"},
			},
		},
		{
			name:       "the department's limit for a type stands in the place of its default",
			department: `{"*": {maxRuntime: 24h}, train: {maxRuntime: 10d}}`,
			project:    `{train: {maxRuntime: 9d}, "*": {maxRuntime: 25h}}`,
			want:       []v1alpha1.LooseLimit{{Type: "*", Field: "maxRuntime", Value: "25h", Bound: "24h"}},
		},
		{
			name:    "where the department has no limit, any limit is tighter",
			project: `{"*": {maxRuntime: 90000d, idleTimeout: 9000d}}`,
		},
		{
			name:    "where the department says nothing, its defaults bind",
			project: `{"*": {startTimeout: 31m, clock: Active, resetAfter: 59m, dryRun: true}}`,
			want: []v1alpha1.LooseLimit{
				{Type: "*", Field: "startTimeout", Value: "31m", Bound: "30m"},
				{Type: "*", Field: "clock", Value: "Active", Bound: "Running"},
				{Type: "*", Field: "resetAfter", Value: "59m", Bound: "1h"},
				{Type: "*", Field: "dryRun", Value: "true", Bound: "false"},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := v1alpha1.FindLimitsAboveDepartment(parseLimits(t, tc.project), parseLimits(t, tc.department))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTightestLimits(t *testing.T) {
	h := period.MustParseDuration
	for _, tc := range []struct {
		name                string
		department, project string
		want                v1alpha1.Limits
	}{
		{
			name: "nothing said: no end",
			want: v1alpha1.Limits{StartTimeout: h("30m"), Clock: "Running", ResetAfter: h("1h")},
		},
		{
			name:       "the type's, and what it leaves open from the default",
			department: `{"*": {maxRuntime: 48h, startTimeout: 2h, clock: Active, resetAfter: 3h, dryRun: true}, interactive: {maxRuntime: 24h, idleTimeout: 2h}}`,
			want:       v1alpha1.Limits{MaxRuntime: h("24h"), IdleTimeout: h("2h"), StartTimeout: h("2h"), Clock: "Active", ResetAfter: h("3h"), DryRun: true},
		},
		{
			name:       "the project's where it is tighter",
			department: `{"*": {maxRuntime: 48h, idleTimeout: 2h, clock: Active, resetAfter: 1h, dryRun: true}}`,
			project:    `{"*": {idleTimeout: 1h, startTimeout: 10m, resetAfter: 2h}, interactive: {maxRuntime: 24h, clock: Running, dryRun: false}}`,
			want:       v1alpha1.Limits{MaxRuntime: h("24h"), IdleTimeout: h("1h"), StartTimeout: h("10m"), Clock: "Running", ResetAfter: h("2h")},
		},
		{
			name:       "the department's where the project is looser, since the department was tightened",
			department: `{"*": {maxRuntime: 48h, idleTimeout: 2h, clock: Running, resetAfter: 1h, dryRun: false}}`,
			project:    `{interactive: {maxRuntime: 72h, idleTimeout: 3h, startTimeout: 3h, clock: Active, resetAfter: 30m, dryRun: true}}`,
			want:       v1alpha1.Limits{MaxRuntime: h("48h"), IdleTimeout: h("2h"), StartTimeout: h("30m"), Clock: "Running", ResetAfter: h("1h")},
		},
		{
			name:    "the project's where the department has none",
			project: `{"*": {maxRuntime: 24h, idleTimeout: 2h}}`,
			want:    v1alpha1.Limits{MaxRuntime: h("24h"), IdleTimeout: h("2h"), StartTimeout: h("30m"), Clock: "Running", ResetAfter: h("1h")},
		},
		{
			name:       "another type's are not its own",
			department: `{train: {maxRuntime: 24h}}`,
			project:    `{inference: {maxRuntime: 12h}}`,
			want:       v1alpha1.Limits{StartTimeout: h("30m"), Clock: "Running", ResetAfter: h("1h")},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := v1alpha1.TightestLimits(v1alpha1.WorkloadInteractive, parseLimits(t, tc.project), parseLimits(t, tc.department))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The department's limits bind every project, and a project that loosens no limit gets all of its
// own.
func TestProjectNeverLoosensDepartmentLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		department, project := drawLimits(t, "department"), drawLimits(t, "project")
		kind := rapid.SampledFrom(v1alpha1.WorkloadTypes).Draw(t, "type")
		bound := v1alpha1.TightestLimits(kind, nil, department)
		got := v1alpha1.TightestLimits(kind, project, department)
		asProject := limitsByType{kind: {
			Clock: got.Clock, ResetAfter: &got.ResetAfter, DryRun: &got.DryRun,
			MaxRuntime: durationOrNil(got.MaxRuntime), IdleTimeout: durationOrNil(got.IdleTimeout),
			StartTimeout: durationOrNil(got.StartTimeout),
		}}
		if looser := v1alpha1.FindLimitsAboveDepartment(asProject, department); len(looser) > 0 {
			t.Fatalf("what holds is looser than the department: %+v", looser)
		}
		for _, pair := range [][2]period.Duration{{bound.MaxRuntime, got.MaxRuntime}, {bound.IdleTimeout, got.IdleTimeout}} {
			if !pair[0].IsZero() && pair[1].IsZero() {
				t.Fatalf("the department's limit %s is gone", pair[0])
			}
		}
		own := project[kind]
		if len(v1alpha1.FindLimitsAboveDepartment(limitsByType{kind: own}, department)) == 0 && own.MaxRuntime != nil && !own.MaxRuntime.Equal(got.MaxRuntime) {
			t.Fatalf("the project says %s, and %s holds", own.MaxRuntime, got.MaxRuntime)
		}
	})
}

func drawLimits(t *rapid.T, label string) limitsByType {
	texts := []string{"", "30m", "1h", "2h", "24h", "48h", "10d"}
	duration := func(field string) *period.Duration {
		text := rapid.SampledFrom(texts).Draw(t, label+field)
		if text == "" {
			return nil
		}
		d := period.MustParseDuration(text)
		return &d
	}
	limits := limitsByType{}
	for _, kind := range []v1alpha1.WorkloadType{"*", "train", "interactive", "inference"} {
		if !rapid.Bool().Draw(t, label+string(kind)) {
			continue
		}
		var dryRun *bool
		if rapid.Bool().Draw(t, label+"dryRunSet") {
			dry := rapid.Bool().Draw(t, label+"dryRun")
			dryRun = &dry
		}
		limits[kind] = v1alpha1.WorkloadLimits{
			MaxRuntime: duration("maxRuntime"), IdleTimeout: duration("idleTimeout"), StartTimeout: duration("startTimeout"),
			ResetAfter: duration("resetAfter"),
			Clock:      rapid.SampledFrom([]v1alpha1.WorkloadClockMode{"", v1alpha1.ClockRunning, v1alpha1.ClockActive}).Draw(t, label+"clock"),
			DryRun:     dryRun,
		}
	}
	return limits
}

func durationOrNil(d period.Duration) *period.Duration {
	if d.IsZero() {
		return nil
	}
	return &d
}

func parseLimits(t *testing.T, text string) limitsByType {
	t.Helper()
	var limits limitsByType
	if err := yaml.UnmarshalStrict([]byte(text), &limits); err != nil {
		t.Fatal(err)
	}
	return limits
}

func TestFindLimitsLoosenedByUpdate(t *testing.T) {
	const all = `{train: {maxRuntime: 48h, idleTimeout: 2h, clock: Running, resetAfter: 2h, dryRun: false}}`
	for _, tc := range []struct {
		name, before, after string
		want                []v1alpha1.LooseLimit
	}{
		{name: "nothing said"},
		{name: "as before, otherwise written", before: all, after: `{train: {maxRuntime: 2d, idleTimeout: 120m, clock: Running, resetAfter: 120m, dryRun: false}}`},
		{name: "where nothing was, anything is tighter", after: all},
		{name: "tighter in everything", before: all, after: `{train: {maxRuntime: 24h, idleTimeout: 1h, clock: Running, resetAfter: 3h, dryRun: false}}`},
		{name: "what never bound", before: `{train: {clock: Active, dryRun: true}}`},
		{
			name: "looser in everything", before: all,
			after: `{train: {maxRuntime: 49h, idleTimeout: 3h, clock: Active, resetAfter: 1h, dryRun: true}}`,
			want: []v1alpha1.LooseLimit{
				{Type: "train", Field: "maxRuntime", Value: "49h", Bound: "48h"},
				{Type: "train", Field: "idleTimeout", Value: "3h", Bound: "2h"},
				{Type: "train", Field: "clock", Value: "Active", Bound: "Running"},
				{Type: "train", Field: "resetAfter", Value: "1h", Bound: "2h"},
				{Type: "train", Field: "dryRun", Value: "true", Bound: "false"},
			},
		},
		{
			name: "taken away", before: all,
			want: []v1alpha1.LooseLimit{
				{Type: "train", Field: "maxRuntime", Bound: "48h"},
				{Type: "train", Field: "idleTimeout", Bound: "2h"},
				{Type: "train", Field: "clock", Bound: "Running"},
				{Type: "train", Field: "resetAfter", Bound: "2h"},
				{Type: "train", Field: "dryRun", Bound: "false"},
			},
		},
		{
			name: "a type comes out of the limit for all", before: `{"*": {maxRuntime: 10h}}`, after: `{"*": {maxRuntime: 10h}, train: {maxRuntime: 11h}}`,
			want: []v1alpha1.LooseLimit{{Type: "train", Field: "maxRuntime", Value: "11h", Bound: "10h"}},
		},
		{
			name: "a type comes under the limit for all", before: `{"*": {maxRuntime: 10h}, train: {maxRuntime: 9h}}`, after: `{"*": {maxRuntime: 10h}}`,
			want: []v1alpha1.LooseLimit{{Type: "train", Field: "maxRuntime", Value: "10h", Bound: "9h"}},
		},
		{
			name: "the limit for all, where a type has its own", before: `{"*": {maxRuntime: 10h}, train: {maxRuntime: 9h}, inference: {maxRuntime: 9h}}`,
			after: `{train: {maxRuntime: 9h}, inference: {maxRuntime: 9h}}`,
			want:  []v1alpha1.LooseLimit{{Type: "interactive", Field: "maxRuntime", Bound: "10h"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := v1alpha1.FindLimitsLoosenedByUpdate(parseLimits(t, tc.before), parseLimits(t, tc.after))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
