// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package quotas_test

import (
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/quotas"
)

func TestAsked(t *testing.T) {
	const (
		guaranteed = "spec.nodePools[0].gpu.guaranteed"
		instead    = "; ask for less, lower what another project was promised, or have a system administrator raise the department's or set its spec.oversubscription to Allow"
	)
	course := project("course", cpu("60"), pool("dgx", "3", "6"))
	folding := project("folding", cpu("60"), pool("dgx", "99", "99"))
	folding.Spec.Department = "research"
	beside := projects(course, folding, project("thesis", none, pool("dgx", "2", "6")))
	students := func() *v1alpha1.Department { return department(none, pool("dgx", "4", "6")) }
	thesis := func(guaranteed, limit string) *v1alpha1.Project {
		return project("thesis", none, pool("dgx", guaranteed, limit))
	}
	tests := map[string]struct {
		before, project *v1alpha1.Project
		department      *v1alpha1.Department
		wrong, warns    []string
	}{
		"all that is left":             {project: thesis("1", "6"), department: students()},
		"nothing":                      {project: thesis("0", "6"), department: department(none, pool("dgx", "1", "6"))},
		"nothing where nothing is":     {project: thesis("0", "6"), department: department(none, pool("dgx", "0", "6"))},
		"a pool that it does not have": {project: project("thesis", none, pool("cut", "9", "9")), department: students()},
		"a thousandth more": {project: thesis("1001m", "6"), department: students(), wrong: refusal(guaranteed, "1001m",
			"department students is guaranteed 4 GPUs in node pool dgx and has promised 3 to other projects (course 3): it asks for 1001m, and 1 is left"+instead)},
		"where nothing is left": {project: thesis("1", "6"), department: department(none, pool("dgx", "3", "6")), wrong: refusal(guaranteed, "1",
			"department students is guaranteed 3 GPUs in node pool dgx and has promised 3 to other projects (course 3): it asks for 1, and nothing is left"+instead)},
		"more than the department has": {project: project("thesis", none, pool("cut", "2", "2")), department: department(none, pool("cut", "1", "2")), wrong: refusal(guaranteed, "2",
			"department students is guaranteed 1 GPU in node pool cut and has promised none of it to other projects: it asks for 2, and 1 is left"+instead)},
		"where that is allowed": {project: thesis("2", "6"), department: allowing(students()), warns: []string{guaranteed +
			": department students is guaranteed 4 GPUs in node pool dgx and has promised 3 to other projects (course 3): it asks for 2, and 1 is left; the department allows that (spec.oversubscription), but not all can then have theirs at once"}},
		"as before, though it is too much":   {before: thesis("2", "6"), project: thesis("2", "6"), department: students()},
		"less, though it is still too much":  {before: thesis("3", "6"), project: thesis("2", "6"), department: students()},
		"more, though it was too much":       {before: thesis("2", "6"), project: thesis("2500m", "6"), department: students(), wrong: []string{}},
		"a limit as the department's":        {project: thesis("0", "6"), department: students()},
		"a limit above the department's":     {project: thesis("0", "6001m"), department: students(), wrong: refusal("spec.nodePools[0].gpu.limit", "6001m", "must not be more than the limit of department students in node pool dgx, 6 GPUs")},
		"above, also where much is allowed":  {project: thesis("0", "7"), department: allowing(students()), wrong: refusal("spec.nodePools[0].gpu.limit", "7", "must not be more than the limit of department students in node pool dgx, 6 GPUs")},
		"above as before":                    {before: thesis("0", "8"), project: thesis("0", "7"), department: students()},
		"above in a pool that is new to it":  {before: project("thesis", none), project: thesis("0", "7"), department: students(), wrong: []string{}},
		"no CPU where the department has it": {project: thesis("0", "6"), department: department(cpu("64"), pool("dgx", "4", "6")), wrong: []string{"spec.resources.cpu: Required value: department students has a quota of CPU, 64, so each of its projects needs one; 4 is left"}},
		"no CPU any more":                    {before: project("thesis", cpu("1")), project: project("thesis", none), department: department(cpu("64")), wrong: []string{}},
		"no CPU as before":                   {before: project("thesis", none), project: project("thesis", none), department: department(cpu("64"))},
		"CPU of which nothing is said":       {project: project("thesis", cpu("999")), department: department(none)},
		"all the CPU that is left":           {project: project("thesis", cpu("4")), department: department(cpu("64"))},
		"more CPU than is left": {project: project("thesis", cpu("4500m")), department: department(cpu("64")), wrong: refusal("spec.resources.cpu", "4500m",
			"department students has 64 cores and has promised 60 to other projects (course 60): it asks for 4500m, and 4 is left"+instead)},
		"more memory than there is": {project: project("thesis", memory("2Gi")), department: department(memory("1Gi")), wrong: refusal("spec.resources.memory", "2Gi",
			"department students has 1Gi of memory and has promised none of it to other projects: it asks for 2Gi, and 1Gi is left"+instead)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			errs, warnings := quotas.Asked(spec, tc.before, tc.project, tc.department, beside)
			if tc.wrong != nil && len(tc.wrong) == 0 { // refused, in words that another case has
				if len(errs) != 1 {
					t.Errorf("errors = %v, want one", errs)
				}
				return
			}
			expect(t, errs, warnings, tc.wrong, tc.warns)
		})
	}
}
