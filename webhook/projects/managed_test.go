// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// What rita, who only manages the thesis, may write of it, and who may where she may
// not.
func TestWhoManagesAProjectMayWrite(t *testing.T) {
	owned := project(having("500m", "4"), ownedBy("anna"), asked("24h"), with("ed", v1alpha1.RoleEditor), with("rita", v1alpha1.RoleResearchManager), with("kim", v1alpha1.RoleL2Researcher))
	changed := func(changes ...change) *v1alpha1.Project {
		p := owned.DeepCopy()
		for _, c := range changes {
			c(p)
		}
		return p
	}
	without := func(name string) change {
		return func(p *v1alpha1.Project) {
			p.Spec.Members = slices.DeleteFunc(p.Spec.Members, func(m v1alpha1.Member) bool { return m.Name == name })
		}
	}
	exception := &v1alpha1.Exception{Reason: "I say so"}
	const (
		only    = "whoever manages a project changes its spec.members, spec.nodePools, spec.resources and, to tighten them, spec.workloads, and nothing else: ask a member of department students with the role department-administrator"
		tighter = "whoever manages a project tightens its limits and never loosens them; the project has 24h: ask a member of department students"
	)
	tests := map[string]struct {
		after *v1alpha1.Project
		code  int32
		says  []string
	}{
		"nothing":              {changed(), http.StatusOK, nil},
		"a researcher":         {changed(with("zoe", v1alpha1.RoleL1Researcher)), http.StatusOK, nil},
		"one who goes":         {changed(without("kim")), http.StatusOK, nil},
		"an editor":            {changed(with("zoe", v1alpha1.RoleEditor)), http.StatusUnprocessableEntity, []string{"spec.members[3].role", `"editor"`, "more than you may grant"}},
		"an editor who goes":   {changed(without("ed")), http.StatusUnprocessableEntity, []string{"spec.members", "without User ed", "takes the role editor"}},
		"itself":               {changed(without("rita")), http.StatusUnprocessableEntity, []string{"takes the role research-manager"}},
		"more of what is left": {changed(having("1", "6")), http.StatusOK, nil},
		"more than is left":    {changed(having("1500m", "6")), http.StatusUnprocessableEntity, []string{"spec.nodePools[0].gpu.guaranteed", "1 is left"}},
		"more than the limit":  {changed(having("1", "7")), http.StatusUnprocessableEntity, []string{"spec.nodePools[0].gpu.limit", "6 GPUs"}},
		"a pool of the department": {changed(func(p *v1alpha1.Project) {
			p.Spec.NodePools = append(p.Spec.NodePools, v1alpha1.PoolQuota{Name: "dgx-mig"})
		}), http.StatusOK, nil},
		"a pool of another's": {changed(on("h200")), http.StatusUnprocessableEntity, []string{"spec.nodePools[0].name"}},
		"a quota of CPU":      {changed(func(p *v1alpha1.Project) { p.Spec.Resources.CPU = ptr.To(resource.MustParse("4")) }), http.StatusOK, nil},
		"a tighter limit":     {changed(asked("12h")), http.StatusOK, nil},
		"a further limit": {changed(func(p *v1alpha1.Project) {
			p.Spec.Workloads[v1alpha1.WorkloadTrain] = v1alpha1.WorkloadLimits{MaxRuntime: ptr.To(period.MustParseDuration("3d"))}
		}), http.StatusOK, nil},
		"a larger part of what is idle": {changed(weighing(2)), http.StatusForbidden, []string{"spec.nodePools[0].gpu.overQuotaWeight: Invalid value: 2", "does not raise its part in what is idle; it is 1"}},
		"none of what is idle":          {changed(weighing(0)), http.StatusOK, nil},
		"a looser limit":                {changed(asked("36h")), http.StatusForbidden, []string{`spec.workloads[interactive].maxRuntime: Invalid value: "36h"`, tighter}},
		"no limit":                      {changed(func(p *v1alpha1.Project) { p.Spec.Workloads = nil }), http.StatusForbidden, []string{"spec.workloads[interactive].maxRuntime: Required value", tighter}},
		"another department":            {changed(of("research")), http.StatusForbidden, []string{`spec.department: Invalid value: "research"`, only}},
		"another owner":                 {changed(ownedBy("rita")), http.StatusForbidden, []string{"spec.owners: Forbidden", only}},
		"a hold":                        {changed(func(p *v1alpha1.Project) { p.Spec.Hold = exception }), http.StatusForbidden, []string{"spec.hold: Forbidden", only}},
		"an exemption":                  {changed(func(p *v1alpha1.Project) { p.Spec.Exempt = exception }), http.StatusForbidden, []string{"spec.exempt: Forbidden", only}},
		"a looser Pod Security":         {changed(secured("privileged")), http.StatusForbidden, []string{`spec.podSecurity: Invalid value: "privileged"`, only}},
		"a stricter Pod Security":       {changed(secured("restricted")), http.StatusForbidden, []string{"spec.podSecurity", only}},
		"another beginning":             {changed(func(p *v1alpha1.Project) { p.Spec.ValidFrom = ptr.To(period.MustParseDate("2026-10-01")) }), http.StatusForbidden, []string{`spec.validFrom: Invalid value: "2026-10-01"`, only}},
		"another namespace":             {changed(in("lab")), http.StatusForbidden, []string{`spec.namespace: Invalid value: "lab"`, only}},
		"a label of Sluice's":           {changed(func(p *v1alpha1.Project) { p.Labels = map[string]string{v1alpha1.LabelDepartment: "research"} }), http.StatusForbidden, []string{"metadata.labels: Forbidden", only}},
		"a label":                       {changed(labelled), http.StatusForbidden, []string{"metadata.labels: Forbidden", only}},
		"a note":                        {changed(func(p *v1alpha1.Project) { p.Annotations = map[string]string{"sluice.dev/note": "x"} }), http.StatusForbidden, []string{"metadata.annotations: Forbidden", only}},
		"what kubectl keeps":            {changed(func(p *v1alpha1.Project) { p.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}"} }), http.StatusOK, nil},
		"an owner in Kubernetes":        {changed(func(p *v1alpha1.Project) { p.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }), http.StatusForbidden, []string{"metadata.ownerReferences: Forbidden", only}},
		"a finalizer":                   {changed(func(p *v1alpha1.Project) { p.Finalizers = []string{"example.org/mine"} }), http.StatusForbidden, []string{"metadata.finalizers: Forbidden", only}},
		"all at once":                   {changed(of("research"), labelled, asked("36h")), http.StatusForbidden, []string{"metadata.labels", "spec.department", "spec.workloads[interactive].maxRuntime"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			all := reader(t, project(named("course"), having("3", "3")))
			got := answer(t, &Validator{Cached: all, Live: all, Writers: staff}, "rita", owned, tc.after)
			if got.Result == nil || got.Result.Code != tc.code {
				t.Fatalf("answer = %+v, want %d that says %q", got.Result, tc.code, tc.says)
			}
			for _, want := range tc.says {
				if !strings.Contains(got.Result.Message, want) {
					t.Errorf("%q does not say %q", got.Result.Message, want)
				}
			}
		})
	}
}

// Managing is of one project that is there, and adds nothing to a department's.
func TestManagingIsOfOneProject(t *testing.T) {
	plain, member := project(), with("kim", v1alpha1.RoleL2Researcher)
	tests := map[string]struct {
		user          string
		before, after *v1alpha1.Project
		code          int32
		says          string
	}{
		"made":                                   {"rita", nil, plain, http.StatusForbidden, "rita does not administer department students, and only whoever does makes"},
		"another's member":                       {"rita", project(named("course")), project(named("course"), member), http.StatusForbidden, "does not manage the project either"},
		"moved by who administers where it goes": {"rector", plain, project(of("research")), http.StatusForbidden, "spec.department"},
		"its member, by the same":                {"rector", plain, project(member), http.StatusOK, ""},
		"nobody can say":                         {"offline", plain, project(member), http.StatusForbidden, "down"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			all := reader(t)
			got := answer(t, &Validator{Cached: all, Live: all, Writers: staff}, tc.user, tc.before, tc.after)
			if got.Result == nil || got.Result.Code != tc.code || !strings.Contains(got.Result.Message, tc.says) {
				t.Errorf("answer = %+v, want %d that says %q", got.Result, tc.code, tc.says)
			}
		})
	}
}

// weighing gives the project's first node pool another weight.
func weighing(weight int32) func(*v1alpha1.Project) {
	return func(p *v1alpha1.Project) { p.Spec.NodePools[0].GPU.OverQuotaWeight = &weight }
}
