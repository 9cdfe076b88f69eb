// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package quotas_test

import (
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/quotas"
)

func TestPromised(t *testing.T) {
	const (
		guaranteed = "spec.nodePools[0].gpu.guaranteed"
		excess     = "the projects of department students were promised 5 GPUs in node pool dgx (course 3, thesis 2), "
		mend       = "; lower theirs first, or set spec.oversubscription to Allow"
		allowed    = "; the department allows that (spec.oversubscription), but not all can then have theirs at once"
	)
	elsewhere := project("folding", none, pool("dgx", "99", "99"), pool("cut", "1", "1"))
	elsewhere.Spec.Department = "research"
	all := projects(project("thesis", cpu("8"), pool("dgx", "2", "6")), project("course", none, pool("dgx", "3", "5")), elsewhere)
	gpus := func(guaranteed, limit string) *v1alpha1.Department {
		return department(none, pool("dgx", guaranteed, limit))
	}
	tests := map[string]struct {
		before, after *v1alpha1.Department
		wrong, warns  []string
	}{
		"as much as it promised":         {before: gpus("8", "8"), after: gpus("5", "8")},
		"more":                           {before: gpus("5", "6"), after: gpus("6", "8")},
		"less than it promised":          {before: gpus("8", "8"), after: gpus("4", "8"), wrong: refusal(guaranteed, "4", excess+"1 more than that"+mend)},
		"less, where that is allowed":    {before: gpus("8", "8"), after: allowing(gpus("4", "8")), warns: []string{guaranteed + ": " + excess + "1 more than that" + allowed}},
		"allowed and unchanged":          {before: allowing(gpus("4", "8")), after: allowing(gpus("4", "8"))},
		"no more allowed":                {before: allowing(gpus("4500m", "8")), after: gpus("4500m", "8"), wrong: refusal(guaranteed, "4500m", excess+"500m more than that"+mend)},
		"too little of old":              {before: gpus("3", "8"), after: gpus("4", "8")},
		"another pool goes":              {before: department(none, pool("dgx", "8", "8"), pool("cut", "1", "1")), after: gpus("8", "8")},
		"the pool goes":                  {before: gpus("8", "8"), after: department(none), wrong: []string{"spec.nodePools: Forbidden: node pool dgx cannot be taken away while projects name it: take it out of spec.nodePools of course, thesis first"}},
		"the pool goes, much is allowed": {before: allowing(gpus("8", "8")), after: allowing(department(none)), wrong: []string{"spec.nodePools: Forbidden: node pool dgx cannot be taken away while projects name it: take it out of spec.nodePools of course, thesis first"}},
		"the pool comes":                 {before: department(none), after: gpus("1", "8")},
		"a limit below a project's":      {before: gpus("5", "8"), after: gpus("5", "5"), wrong: refusal("spec.nodePools[0].gpu.limit", "5", "no project's limit may be more than its department's; in node pool dgx lower first those of thesis 6")},
		"a limit below of old":           {before: gpus("5", "5"), after: gpus("5", "5")},
		"a quota of CPU":                 {before: gpus("5", "8"), after: department(cpu("64"), pool("dgx", "5", "8")), wrong: refusal("spec.resources.cpu", "64", "where a department has a quota of CPU, each of its projects has one: state spec.resources.cpu in course first")},
		"less CPU":                       {before: department(cpu("64"), pool("dgx", "5", "8")), after: department(cpu("4"), pool("dgx", "5", "8")), wrong: refusal("spec.resources.cpu", "4", "the projects of department students were promised 8 cores (thesis 8), 4 more than that"+mend)},
		"no quota of CPU any more":       {before: department(cpu("64"), pool("dgx", "5", "8")), after: gpus("5", "8")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			errs, warnings := quotas.Promised(spec, tc.before, tc.after, all)
			expect(t, errs, warnings, tc.wrong, tc.warns)
		})
	}
}
