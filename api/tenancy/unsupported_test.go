// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/period"
	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

// Protects invariant 11: each declared field without effect is named, and no other.
func TestUnsupportedFields(t *testing.T) {
	duration := period.MustParseDuration
	limits := func(l v1alpha1.WorkloadLimits) map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits {
		return map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{v1alpha1.WorkloadInteractive: l}
	}
	idle, limit := duration("2h"), duration("48h")
	active := limits(v1alpha1.WorkloadLimits{Clock: v1alpha1.ClockActive})
	effective := limits(v1alpha1.WorkloadLimits{MaxRuntime: &limit, StartTimeout: &idle, Clock: v1alpha1.ClockRunning})
	validity, err := period.ParsePeriod("P6M")
	if err != nil {
		t.Fatal(err)
	}
	department := func(change func(*v1alpha1.DepartmentSpec)) []tenancy.UnsupportedField {
		d := &v1alpha1.Department{}
		d.Spec.Workloads = effective
		d.Spec.Projects.AtExpiry = v1alpha1.ExpiryExpire // a default
		d.Spec.Notices.ProjectExpiry = []period.Duration{duration("30d"), duration("7d"), duration("1d")}
		change(&d.Spec)
		return tenancy.UnsupportedInDepartment(d)
	}
	project := func(change func(*v1alpha1.ProjectSpec)) []tenancy.UnsupportedField {
		p := &v1alpha1.Project{Spec: v1alpha1.ProjectSpec{Workloads: effective, Hold: &v1alpha1.Exception{Reason: "thesis"}}}
		change(&p.Spec)
		return tenancy.UnsupportedInProject(p)
	}
	extension := func(action v1alpha1.ExtensionAction) []tenancy.UnsupportedField {
		return tenancy.UnsupportedInExtension(&v1alpha1.Extension{Spec: v1alpha1.ExtensionSpec{Action: action}})
	}
	pool := func(compute v1alpha1.Compute) []tenancy.UnsupportedField {
		return tenancy.UnsupportedInNodePool(&v1alpha1.NodePool{Spec: v1alpha1.NodePoolSpec{Compute: compute}})
	}
	tests := map[string]struct {
		got  []tenancy.UnsupportedField
		want string
	}{
		"a department with effective fields": {department(func(*v1alpha1.DepartmentSpec) {}), ""},
		"a department with an expiry": {department(func(s *v1alpha1.DepartmentSpec) {
			s.Projects.Validity, s.Holidays, s.Notices.ProjectExpiry = &validity, make([]v1alpha1.Holiday, 1), []period.Duration{idle}
		}), "spec.projects, spec.holidays, spec.notices.projectExpiry"},
		"a department with a digest":    {department(func(s *v1alpha1.DepartmentSpec) { s.Notices.Digest = "0 8 * * *" }), "spec.notices.digest"},
		"a department with idle limits": {department(func(s *v1alpha1.DepartmentSpec) { s.Workloads = limits(v1alpha1.WorkloadLimits{IdleTimeout: &idle}) }), "spec.workloads[*].idleTimeout"},
		"a department with active time": {department(func(s *v1alpha1.DepartmentSpec) { s.Workloads = active }), "spec.workloads[*].clock: Active"},
		"a project on hold":             {project(func(*v1alpha1.ProjectSpec) {}), ""},
		"a project with a start":        {project(func(s *v1alpha1.ProjectSpec) { s.ValidFrom = &period.Date{} }), "spec.validFrom"},
		"a project with active time":    {project(func(s *v1alpha1.ProjectSpec) { s.Workloads = active }), "spec.workloads[*].clock: Active"},
		"a fair node pool":              {pool(v1alpha1.ComputeFair), ""},
		"a strict node pool":            {pool(v1alpha1.ComputeStrict), "spec.compute: Strict"},
		"an extension of a workload":    {extension(v1alpha1.ActionExtend), ""},
		"a renewal":                     {extension(v1alpha1.ActionRenew), ""},
		"a deletion":                    {extension(v1alpha1.ActionDelete), "spec.action: Delete"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var paths []string
			for _, f := range tc.got {
				paths = append(paths, f.Path)
			}
			if diff := cmp.Diff(tc.want, strings.Join(paths, ", ")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	const want = "these fields have no effect yet: spec.validFrom (is the start of the project's validity)"
	if got := tenancy.DescribeUnsupported(project(func(s *v1alpha1.ProjectSpec) { s.ValidFrom = &period.Date{} })); got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}
