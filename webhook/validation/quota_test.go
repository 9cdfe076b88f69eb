// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/validation"
)

var specPath = field.NewPath("spec")

func poolQuota(name, guaranteed, limit string) v1alpha1.PoolQuota {
	return v1alpha1.PoolQuota{Name: name, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}}
}

func cpuQuota(cores string) v1alpha1.ResourceQuota {
	return v1alpha1.ResourceQuota{CPU: ptr.To(resource.MustParse(cores))}
}

func memoryQuota(bytes string) v1alpha1.ResourceQuota {
	return v1alpha1.ResourceQuota{Memory: ptr.To(resource.MustParse(bytes))}
}

// noResources is no quota of CPU and memory.
var noResources v1alpha1.ResourceQuota

func newProject(name string, resources v1alpha1.ResourceQuota, pools ...v1alpha1.PoolQuota) *v1alpha1.Project {
	return &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ProjectSpec{Department: "students", NodePools: pools, Resources: resources},
	}
}

func newDepartment(resources v1alpha1.ResourceQuota, pools ...v1alpha1.PoolQuota) *v1alpha1.Department {
	return &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "students"},
		Spec:       v1alpha1.DepartmentSpec{NodePools: pools, Resources: resources},
	}
}

func allowOversubscription(d *v1alpha1.Department) *v1alpha1.Department {
	d.Spec.Oversubscription = v1alpha1.OversubscriptionAllow
	return d
}

func projectList(all ...*v1alpha1.Project) (list []v1alpha1.Project) {
	for _, p := range all {
		list = append(list, *p)
	}
	return list
}

// expectResult compares the texts of errors and warnings.
func expectResult(t *testing.T, errs field.ErrorList, warnings, wantErrs, wantWarnings []string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if diff := cmp.Diff(wantErrs, got); diff != "" {
		t.Errorf("errors (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(wantWarnings, warnings); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
}

func fieldError(field, value, detail string) []string {
	return []string{fmt.Sprintf("%s: Invalid value: %q: %s", field, value, detail)}
}

func TestValidateProjectQuota(t *testing.T) {
	const (
		guaranteed = "spec.nodePools[0].gpu.guaranteed"
		fix        = "; request less, lower the quota of another project, or ask a system administrator to raise the department's or to set its spec.oversubscription to Allow"
	)
	course := newProject("course", cpuQuota("60"), poolQuota("dgx", "3", "6"))
	folding := newProject("folding", cpuQuota("60"), poolQuota("dgx", "99", "99"))
	folding.Spec.Department = "research"
	beside := projectList(course, folding, newProject("thesis", noResources, poolQuota("dgx", "2", "6")))
	students := func() *v1alpha1.Department { return newDepartment(noResources, poolQuota("dgx", "4", "6")) }
	thesis := func(guaranteed, limit string) *v1alpha1.Project {
		return newProject("thesis", noResources, poolQuota("dgx", guaranteed, limit))
	}
	tests := map[string]struct {
		before, project *v1alpha1.Project
		department      *v1alpha1.Department
		wrong, warns    []string
	}{
		"all that is left":             {project: thesis("1", "6"), department: students()},
		"nothing":                      {project: thesis("0", "6"), department: newDepartment(noResources, poolQuota("dgx", "1", "6"))},
		"nothing of no guarantee":      {project: thesis("0", "6"), department: newDepartment(noResources, poolQuota("dgx", "0", "6"))},
		"a pool that it does not have": {project: newProject("thesis", noResources, poolQuota("mig", "9", "9")), department: students()},
		"a thousandth more": {project: thesis("1001m", "6"), department: students(), wrong: fieldError(guaranteed, "1001m",
			"department students is guaranteed 4 GPUs in node pool dgx and has promised 3 to other projects (course 3): it requests 1001m, and 1 is left"+fix)},
		"no guarantee left": {project: thesis("1", "6"), department: newDepartment(noResources, poolQuota("dgx", "3", "6")), wrong: fieldError(guaranteed, "1",
			"department students is guaranteed 3 GPUs in node pool dgx and has promised 3 to other projects (course 3): it requests 1, and nothing is left"+fix)},
		"more than the department has": {project: newProject("thesis", noResources, poolQuota("mig", "2", "2")), department: newDepartment(noResources, poolQuota("mig", "1", "2")), wrong: fieldError(guaranteed, "2",
			"department students is guaranteed 1 GPU in node pool mig and has promised none of it to other projects: it requests 2, and 1 is left"+fix)},
		"with oversubscription": {project: thesis("2", "6"), department: allowOversubscription(students()), warns: []string{guaranteed +
			": department students is guaranteed 4 GPUs in node pool dgx and has promised 3 to other projects (course 3): it requests 2, and 1 is left; the department allows that (spec.oversubscription), but not all projects can use their quota at the same time"}},
		"an unchanged excess":            {before: thesis("2", "6"), project: thesis("2", "6"), department: students()},
		"a smaller excess":               {before: thesis("3", "6"), project: thesis("2", "6"), department: students()},
		"a larger excess":                {before: thesis("2", "6"), project: thesis("2500m", "6"), department: students(), wrong: []string{}},
		"a limit as the department's":    {project: thesis("0", "6"), department: students()},
		"a limit above the department's": {project: thesis("0", "6001m"), department: students(), wrong: fieldError("spec.nodePools[0].gpu.limit", "6001m", "must not be more than the limit of department students in node pool dgx, 6 GPUs")},
		"above, with oversubscription":   {project: thesis("0", "7"), department: allowOversubscription(students()), wrong: fieldError("spec.nodePools[0].gpu.limit", "7", "must not be more than the limit of department students in node pool dgx, 6 GPUs")},
		"lowered, but still above":       {before: thesis("0", "8"), project: thesis("0", "7"), department: students()},
		"above in a new pool":            {before: newProject("thesis", noResources), project: thesis("0", "7"), department: students(), wrong: []string{}},
		"no quota of CPU":                {project: thesis("0", "6"), department: newDepartment(cpuQuota("64"), poolQuota("dgx", "4", "6")), wrong: []string{"spec.resources.cpu: Required value: department students has a quota of CPU, 64, so each of its projects needs one; 4 is left"}},
		"a removed quota of CPU":         {before: newProject("thesis", cpuQuota("1")), project: newProject("thesis", noResources), department: newDepartment(cpuQuota("64")), wrong: []string{}},
		"still no quota of CPU":          {before: newProject("thesis", noResources), project: newProject("thesis", noResources), department: newDepartment(cpuQuota("64"))},
		"CPU without a department quota": {project: newProject("thesis", cpuQuota("999")), department: newDepartment(noResources)},
		"all the CPU that is left":       {project: newProject("thesis", cpuQuota("4")), department: newDepartment(cpuQuota("64"))},
		"more CPU than is left": {project: newProject("thesis", cpuQuota("4500m")), department: newDepartment(cpuQuota("64")), wrong: fieldError("spec.resources.cpu", "4500m",
			"department students has 64 cores and has promised 60 to other projects (course 60): it requests 4500m, and 4 is left"+fix)},
		"more memory than the department": {project: newProject("thesis", memoryQuota("2Gi")), department: newDepartment(memoryQuota("1Gi")), wrong: fieldError("spec.resources.memory", "2Gi",
			"department students has 1Gi of memory and has promised none of it to other projects: it requests 2Gi, and 1Gi is left"+fix)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			errs, warnings := validation.ValidateProjectQuota(specPath, tc.before, tc.project, tc.department, beside, nil)
			if tc.wrong != nil && len(tc.wrong) == 0 { // denied with the message of another case
				if len(errs) != 1 {
					t.Errorf("errors = %v, want one", errs)
				}
				return
			}
			expectResult(t, errs, warnings, tc.wrong, tc.warns)
		})
	}
}

// Guards invariant 3 of the design: where each project is counted alone, the limits of a department's
// projects add up to at most its own. Four projects of limit 1 used 4.1 of a department's 1.
func TestValidateSumOfLimits(t *testing.T) {
	const (
		limit = "spec.nodePools[0].gpu.limit"
		fix   = "; request less, lower the quota of another project, or ask a system administrator to raise the department's or to set its spec.oversubscription to Allow"
		left  = "department students is limited to 6 GPUs in node pool dgx, where each project is counted alone, and has promised 5 to other projects (course 5): it requests 2, and 1 is left"
	)
	course := projectList(newProject("course", noResources, poolQuota("dgx", "0", "5")))
	students := func(limit string) *v1alpha1.Department {
		return newDepartment(noResources, poolQuota("dgx", "4", limit))
	}
	thesis := func(limit string) *v1alpha1.Project {
		return newProject("thesis", noResources, poolQuota("dgx", "0", limit))
	}
	withoutBorrowing := thesis("6")
	withoutBorrowing.Spec.NodePools[0].GPU.OverQuotaWeight = ptr.To(int32(0))
	pools := func(scheduler v1alpha1.Scheduler) []v1alpha1.NodePool {
		return []v1alpha1.NodePool{{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Spec: v1alpha1.NodePoolSpec{Scheduler: scheduler}}}
	}
	kube := pools(v1alpha1.SchedulerKube)
	allowed := "; the department allows that (spec.oversubscription), and of the GPU pods of its projects above its limit, the newest over quota are ended"
	for name, tc := range map[string]struct {
		before, project *v1alpha1.Project
		department      *v1alpha1.Department
		pools           []v1alpha1.NodePool
		wrong, warns    []string
	}{
		"all that is left":      {project: thesis("1"), department: students("6"), pools: kube},
		"more than is left":     {project: thesis("2"), department: students("6"), pools: kube, wrong: fieldError(limit, "2", left+fix)},
		"on YuniKorn":           {project: thesis("2"), department: students("6"), pools: pools(v1alpha1.SchedulerYuniKorn), wrong: fieldError(limit, "2", left+fix)},
		"with oversubscription": {project: thesis("2"), department: allowOversubscription(students("6")), pools: kube, warns: []string{limit + ": " + left + allowed}},
		"an unchanged excess":   {before: thesis("2"), project: thesis("2"), department: students("6"), pools: kube},
		"without borrowing":     {project: withoutBorrowing, department: students("6"), pools: kube},
		"with queues":           {project: thesis("6"), department: students("6"), pools: pools(v1alpha1.SchedulerKueue)},
	} {
		t.Run(name, func(t *testing.T) {
			errs, warnings := validation.ValidateProjectQuota(specPath, tc.before, tc.project, tc.department, course, tc.pools)
			expectResult(t, errs, warnings, tc.wrong, tc.warns)
		})
	}
	all := append(projectList(thesis("2")), course...)
	const sum = "the projects of department students were promised 7 GPUs in node pool dgx, where each project is counted alone, (course 5, thesis 2), 2 more than that"
	for name, tc := range map[string]struct {
		before, after *v1alpha1.Department
		wrong, warns  []string
	}{
		"lowered below the sum":     {before: students("7"), after: students("5"), wrong: fieldError(limit, "5", sum+"; lower their quotas first, or set spec.oversubscription to Allow")},
		"lowered to the sum":        {before: students("8"), after: students("7")},
		"lowered, and allowed":      {before: students("7"), after: allowOversubscription(students("5")), warns: []string{limit + ": " + sum + allowed}},
		"no longer allowed":         {before: allowOversubscription(students("5")), after: students("5"), wrong: fieldError(limit, "5", sum+"; lower their quotas first, or set spec.oversubscription to Allow")},
		"an excess from before":     {before: students("5"), after: students("5")},
		"an excess that is smaller": {before: students("5"), after: students("6")},
	} {
		t.Run(name, func(t *testing.T) {
			errs, warnings := validation.ValidateDepartmentQuota(specPath, tc.before, tc.after, all, kube)
			expectResult(t, errs, warnings, tc.wrong, tc.warns)
		})
	}
}

// The warning at the Project says whose pods end where guarantees that are counted alone exceed the department's limit.
func TestGuaranteesAboveDepartmentLimit(t *testing.T) {
	const ends = "; of the pods within the guarantees of its projects, the newest above the department's limit are ended, whichever project they belong to"
	department := allowOversubscription(newDepartment(noResources, poolQuota("dgx", "4", "6")))
	course := projectList(newProject("course", noResources, poolQuota("dgx", "4", "4")))
	for name, tc := range map[string]struct {
		scheduler  v1alpha1.Scheduler
		guaranteed string
		want       bool
	}{
		"at the limit":    {v1alpha1.SchedulerKube, "2", false},
		"above the limit": {v1alpha1.SchedulerKube, "3", true},
		"with queues":     {v1alpha1.SchedulerKueue, "3", false},
	} {
		pools := []v1alpha1.NodePool{{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Spec: v1alpha1.NodePoolSpec{Scheduler: tc.scheduler}}}
		_, warnings := validation.ValidateProjectQuota(specPath, nil, newProject("thesis", noResources, poolQuota("dgx", tc.guaranteed, "3")), department, course, pools)
		if got := slices.ContainsFunc(warnings, func(w string) bool { return strings.HasSuffix(w, ends) }); got != tc.want {
			t.Errorf("%s: warnings %q", name, warnings)
		}
	}
}

func TestValidateDepartmentQuota(t *testing.T) {
	const (
		guaranteed = "spec.nodePools[0].gpu.guaranteed"
		excess     = "the projects of department students were promised 5 GPUs in node pool dgx (course 3, thesis 2), "
		fix        = "; lower their quotas first, or set spec.oversubscription to Allow"
		allowed    = "; the department allows that (spec.oversubscription), but not all projects can use their quota at the same time"
	)
	elsewhere := newProject("folding", noResources, poolQuota("dgx", "99", "99"), poolQuota("mig", "1", "1"))
	elsewhere.Spec.Department = "research"
	all := projectList(newProject("thesis", cpuQuota("8"), poolQuota("dgx", "2", "6")), newProject("course", noResources, poolQuota("dgx", "3", "5")), elsewhere)
	gpus := func(guaranteed, limit string) *v1alpha1.Department {
		return newDepartment(noResources, poolQuota("dgx", guaranteed, limit))
	}
	tests := map[string]struct {
		before, after *v1alpha1.Department
		wrong, warns  []string
	}{
		"as much as it promised":         {before: gpus("8", "8"), after: gpus("5", "8")},
		"more":                           {before: gpus("5", "6"), after: gpus("6", "8")},
		"less than it promised":          {before: gpus("8", "8"), after: gpus("4", "8"), wrong: fieldError(guaranteed, "4", excess+"1 more than that"+fix)},
		"less, with oversubscription":    {before: gpus("8", "8"), after: allowOversubscription(gpus("4", "8")), warns: []string{guaranteed + ": " + excess + "1 more than that" + allowed}},
		"allowed and unchanged":          {before: allowOversubscription(gpus("4", "8")), after: allowOversubscription(gpus("4", "8"))},
		"oversubscription disabled":      {before: allowOversubscription(gpus("4500m", "8")), after: gpus("4500m", "8"), wrong: fieldError(guaranteed, "4500m", excess+"500m more than that"+fix)},
		"a smaller excess":               {before: gpus("3", "8"), after: gpus("4", "8")},
		"an unused pool removed":         {before: newDepartment(noResources, poolQuota("dgx", "8", "8"), poolQuota("mig", "1", "1")), after: gpus("8", "8")},
		"a used pool removed":            {before: gpus("8", "8"), after: newDepartment(noResources), wrong: []string{"spec.nodePools: Forbidden: node pool dgx cannot be removed while projects name it: remove it from spec.nodePools of course, thesis first"}},
		"removed, with oversubscription": {before: allowOversubscription(gpus("8", "8")), after: allowOversubscription(newDepartment(noResources)), wrong: []string{"spec.nodePools: Forbidden: node pool dgx cannot be removed while projects name it: remove it from spec.nodePools of course, thesis first"}},
		"a new pool":                     {before: newDepartment(noResources), after: gpus("1", "8")},
		"a limit below a project's":      {before: gpus("5", "8"), after: gpus("5", "5"), wrong: fieldError("spec.nodePools[0].gpu.limit", "5", "a project's limit cannot exceed its department's; in node pool dgx first lower those of thesis 6")},
		"an unchanged limit":             {before: gpus("5", "5"), after: gpus("5", "5")},
		"a quota of CPU":                 {before: gpus("5", "8"), after: newDepartment(cpuQuota("64"), poolQuota("dgx", "5", "8")), wrong: fieldError("spec.resources.cpu", "64", "if a department has a quota of CPU, each of its projects needs one: set spec.resources.cpu in course first")},
		"less CPU":                       {before: newDepartment(cpuQuota("64"), poolQuota("dgx", "5", "8")), after: newDepartment(cpuQuota("4"), poolQuota("dgx", "5", "8")), wrong: fieldError("spec.resources.cpu", "4", "the projects of department students were promised 8 cores (thesis 8), 4 more than that"+fix)},
		"a removed quota of CPU":         {before: newDepartment(cpuQuota("64"), poolQuota("dgx", "5", "8")), after: gpus("5", "8")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			errs, warnings := validation.ValidateDepartmentQuota(specPath, tc.before, tc.after, all, nil)
			expectResult(t, errs, warnings, tc.wrong, tc.warns)
		})
	}
}

func TestWarnBelowUsage(t *testing.T) {
	quota := func(guaranteed, limit string) []v1alpha1.PoolQuota {
		return []v1alpha1.PoolQuota{poolQuota("dgx", guaranteed, limit)}
	}
	withoutBorrowing := quota("1", "4")
	withoutBorrowing[0].GPU.OverQuotaWeight = ptr.To(int32(0))
	tests := map[string]struct {
		before, after []v1alpha1.PoolQuota
		inUse         string
		want          []string
	}{
		"new":                       {after: quota("1", "1"), inUse: "9"},
		"unchanged":                 {before: quota("1", "2"), after: quota("1", "2"), inUse: "9"},
		"raised":                    {before: quota("1", "2"), after: quota("2", "3"), inUse: "9"},
		"lowered to the use":        {before: quota("4", "4"), after: quota("2", "2"), inUse: "2"},
		"nothing in use":            {before: quota("4", "4"), after: nil, inUse: "0"},
		"the limit, below its use":  {before: quota("4", "4"), after: quota("2", "2"), inUse: "2500m", want: []string{"spec.nodePools[0].gpu: it uses 2500m GPUs of node pool dgx, 500m more than the new limit: running pods continue, but no new GPU pods start until enough have ended"}},
		"borrowing disabled":        {before: quota("1", "4"), after: withoutBorrowing, inUse: "2", want: []string{"spec.nodePools[0].gpu: it uses 2 GPUs of node pool dgx, 1 more than the new limit: running pods continue, but no new GPU pods start until enough have ended"}},
		"the guarantee only":        {before: quota("4", "4"), after: quota("1", "4"), inUse: "3", want: []string{"spec.nodePools[0].gpu.guaranteed: it uses 3 GPUs of node pool dgx, 2 more than the new guarantee: running pods continue, but preemptible ones can be preempted when others claim their guarantee"}},
		"the pool that is in use":   {before: quota("4", "4"), after: nil, inUse: "1", want: []string{"spec.nodePools: node pool dgx is removed while it uses 1 GPU of it: running pods continue, but no new pods start there"}},
		"the limit, above its use":  {before: quota("4", "4"), after: quota("3", "3"), inUse: "2"},
		"borrowed, guarantee as is": {before: quota("1", "4"), after: quota("1", "3"), inUse: "2"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			use := []v1alpha1.PoolUsage{{Name: "dgx", GPUUsage: v1alpha1.GPUUsage{Allocated: resource.MustParse(tc.inUse)}}}
			expectResult(t, nil, validation.WarnBelowUsage(specPath.Child("nodePools"), tc.before, tc.after, use), nil, tc.want)
		})
	}
}

func TestWarnAboveCapacity(t *testing.T) {
	quota := func(guaranteed string) *v1alpha1.Department {
		return newDepartment(noResources, poolQuota("empty", "9", "9"), poolQuota("dgx", guaranteed, "8"))
	}
	research := quota("5")
	research.Name = "research"
	pools := []v1alpha1.NodePool{
		{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}, Status: v1alpha1.NodePoolStatus{GPUs: 8}},
		{ObjectMeta: metav1.ObjectMeta{Name: "empty"}},
	}
	over := []string{"spec.nodePools[1].gpu.guaranteed: node pool dgx has 8 GPUs, and 9 GPUs are now guaranteed to departments: not all departments can use their guarantee at the same time"}
	tests := map[string]struct {
		before, after *v1alpha1.Department
		want          []string
	}{
		"the whole pool":   {after: quota("3")},
		"more":             {after: quota("4"), want: over},
		"raised to more":   {before: quota("3"), after: quota("4"), want: over},
		"as before":        {before: quota("4"), after: quota("4")},
		"less than before": {before: quota("5"), after: quota("4")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := validation.WarnAboveCapacity(specPath.Child("nodePools"), tc.before, tc.after, []v1alpha1.Department{*quota("99"), *research}, pools)
			expectResult(t, nil, got, nil, tc.want)
		})
	}
}
