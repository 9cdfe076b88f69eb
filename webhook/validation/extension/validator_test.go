// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

func withName(name string) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) { e.Name = name }
}

func withDuration(text string) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) { e.Spec.By = ptr.To(period.MustParseDuration(text)) }
}

func withTarget(apiVersion, kind, name string) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) {
		e.Spec.Target = v1alpha1.ExtensionTarget{APIVersion: apiVersion, Kind: kind, Name: name}
	}
}

func asRenewal(e *v1alpha1.Extension) {
	withTarget("sluice.dev/v1alpha1", "Project", "thesis")(e)
	e.Spec.Action, e.Spec.By = v1alpha1.ActionRenew, nil
}

func withExtensions(n int) func(*v1alpha1.WorkloadClockStatus) {
	return func(s *v1alpha1.WorkloadClockStatus) {
		for i := range n {
			s.Extensions = append(s.Extensions, v1alpha1.ClockExtension{Name: fmt.Sprint("e", i)})
		}
	}
}

func TestValidateCreate(t *testing.T) {
	many := func(n int, decision v1alpha1.ExtensionDecision) (all []client.Object) {
		for i := range n {
			all = append(all, newExtension(withName(fmt.Sprint("open-", i)), func(e *v1alpha1.Extension) { e.Status.Decision = decision }))
		}
		return all
	}
	training := newClock("training")
	nothing := func(terms *v1alpha1.ExtensionTerms) { terms.SelfService = 0 }
	tests := map[string]struct {
		asked *v1alpha1.Extension
		in    []client.Object
		terms []func(*v1alpha1.ExtensionTerms)
		code  int32
		want  []string // what the refusal says
		warns string
	}{
		"within the terms":           {asked: newExtension(), in: []client.Object{training}},
		"more than is granted":       {asked: newExtension(withDuration("48h")), in: []client.Object{training}, warns: "grants at most 24h by itself: 48h wait for a decision by whoever has the role department-administrator"},
		"where nothing is granted":   {asked: newExtension(), in: []client.Object{training}, terms: []func(*v1alpha1.ExtensionTerms){nothing}, warns: "department students grants nothing by itself"},
		"a renewal":                  {asked: newExtension(asRenewal)},
		"nobody's namespace":         {asked: newExtension(func(e *v1alpha1.Extension) { e.Namespace = "default" }), code: http.StatusForbidden, want: []string{"no project has namespace default"}},
		"what never ran":             {asked: newExtension(withTarget("batch/v1", "Job", "other")), in: []client.Object{training}, code: http.StatusUnprocessableEntity, want: []string{"spec.target", "Job other", "sluice clocks -n lab"}},
		"a pod of it":                {asked: newExtension(withTarget("v1", "Pod", "training-abcde")), in: []client.Object{training}, code: http.StatusUnprocessableEntity, want: []string{"the Job, not a pod"}},
		"another group's Job":        {asked: newExtension(withTarget("batch.volcano.sh/v1", "Job", "training")), in: []client.Object{training}, code: http.StatusUnprocessableEntity, want: []string{"Job training"}},
		"another version of it":      {asked: newExtension(withTarget("batch/v1beta1", "Job", "training")), in: []client.Object{training}},
		"no version":                 {asked: newExtension(withTarget("a/b/c", "Job", "training")), in: []client.Object{training}, code: http.StatusUnprocessableEntity, want: []string{"spec.target.apiVersion", "batch/v1"}},
		"what is gone":               {asked: newExtension(), in: []client.Object{newClock("training", func(s *v1alpha1.WorkloadClockStatus) { s.MissingSince = &metav1.Time{Time: now} })}, code: http.StatusUnprocessableEntity, want: []string{"this workload is gone"}},
		"what nothing ends":          {asked: newExtension(), in: []client.Object{newClock("training", func(s *v1alpha1.WorkloadClockStatus) { s.Limit = nil })}, warns: "nothing ends Job training at present"},
		"what was extended often":    {asked: newExtension(), in: []client.Object{newClock("training", withExtensions(117))}},
		"what was extended too much": {asked: newExtension(), in: []client.Object{newClock("training", withExtensions(118))}, code: http.StatusUnprocessableEntity, want: []string{"118 times"}},
		"a name that was used":       {asked: newExtension(withName("e1")), in: []client.Object{newClock("training", withExtensions(2))}, code: http.StatusUnprocessableEntity, want: []string{"metadata.name", "choose another"}},
		"in another's name":          {asked: newExtension(withCreatedBy(dean)), in: []client.Object{training}, code: http.StatusForbidden, want: []string{"must name whoever asks"}},
		"nine wait":                  {asked: newExtension(), in: append(many(9, ""), training)},
		"ten wait":                   {asked: newExtension(), in: append(many(10, ""), training), code: http.StatusForbidden, want: []string{"in namespace lab 10 extensions wait", "department-administrator", "delete one"}},
		"many were decided":          {asked: newExtension(), in: append(many(30, v1alpha1.ExtensionDenied), training)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := newValidator(t, fakeAuthorizer{}, append(tc.in, newProject(), newDepartment(tc.terms...))...)
			response := v.Handler(newScheme(t)).Handle(t.Context(), newRequest(t, userInfo(anna), nil, tc.asked, ""))
			if response.Allowed != (tc.code == 0) {
				t.Fatalf("allowed = %v: %v", response.Allowed, response.Result)
			}
			if !response.Allowed && response.Result.Code != tc.code {
				t.Errorf("code %d, want %d", response.Result.Code, tc.code)
			}
			for _, want := range tc.want {
				if !strings.Contains(response.Result.Message, want) {
					t.Errorf("%q does not say %q", response.Result.Message, want)
				}
			}
			warned := strings.Join(response.Warnings, "\n")
			if (warned == "") != (tc.warns == "") || !strings.Contains(warned, tc.warns) {
				t.Errorf("warnings %q, want %q", warned, tc.warns)
			}
		})
	}
}

func TestValidateDecision(t *testing.T) {
	granted := fakeAuthorizer{officer: "students", root: "*"}
	approves := func(e *v1alpha1.Extension) { e.Status.Decision = v1alpha1.ExtensionApproved }
	says := func(e *v1alpha1.Extension) { e.Status.Message = "hello" }
	standing := func(e *v1alpha1.Extension) {
		e.Status = v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, DecidedBy: dean}
	}
	ends := func(e *v1alpha1.Extension) { e.Status.NewEnd = &metav1.Time{Time: now} }
	applied := func(e *v1alpha1.Extension) {
		e.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue}}
	}
	type changes = []func(*v1alpha1.Extension)
	tests := map[string]struct {
		user          authenticationv1.UserInfo
		roles         []v1alpha1.ApproverRole
		before, after changes
		forged        string // who is said to have decided
		want          string // what the refusal says
	}{
		"an administrator of the department":  {user: userInfo(dean), after: changes{approves, says}},
		"one by the right to":                 {user: userInfo(officer), after: changes{approves}},
		"one of all departments":              {user: userInfo(root), after: changes{approves}},
		"a member without the role":           {user: userInfo(anna), after: changes{approves}, want: "anna@example.org does not decide on it: whoever has the role department-administrator in department students or project thesis does"},
		"an editor, who is not asked":         {user: userInfo(editor), after: changes{approves}, want: "does not decide"},
		"an editor, who is":                   {user: userInfo(editor), roles: []v1alpha1.ApproverRole{"editor"}, after: changes{approves}},
		"a member of a group":                 {user: userInfo(anna, "leads"), roles: []v1alpha1.ApproverRole{"research-manager"}, after: changes{approves}},
		"one who is named like a group":       {user: userInfo("leads"), roles: []v1alpha1.ApproverRole{"research-manager"}, after: changes{approves}, want: "does not decide"},
		"a service account":                   {user: userInfo(robot), roles: []v1alpha1.ApproverRole{"editor"}, after: changes{approves}},
		"another's service account":           {user: userInfo("system:serviceaccount:lab:robot"), roles: []v1alpha1.ApproverRole{"editor"}, after: changes{approves}, want: "does not decide"},
		"the system's administrators alone":   {user: userInfo(root), roles: []v1alpha1.ApproverRole{"system-administrator"}, after: changes{approves}},
		"and not one of the department":       {user: userInfo(officer), roles: []v1alpha1.ApproverRole{"system-administrator"}, after: changes{approves}, want: "system-administrator"},
		"nor a member":                        {user: userInfo(dean), roles: []v1alpha1.ApproverRole{"system-administrator"}, after: changes{approves}, want: "does not decide"},
		"administrators, who are not asked":   {user: userInfo(root), roles: []v1alpha1.ApproverRole{"editor"}, after: changes{approves}, want: "editor"},
		"nothing changes":                     {user: userInfo(anna), before: changes{standing}, after: changes{standing}},
		"a word without a decision":           {user: userInfo(dean), after: changes{says}, want: "status.decision: want Approved or Refused"},
		"a word after the decision":           {user: userInfo(dean), before: changes{standing}, after: changes{standing, says}, want: "a decision stands"},
		"another decision":                    {user: userInfo(dean), before: changes{standing}, after: changes{standing, func(e *v1alpha1.Extension) { e.Status.Decision = v1alpha1.ExtensionDenied }}, want: "a decision stands"},
		"a new end besides":                   {user: userInfo(dean), after: changes{approves, ends}, want: "the rest is Sluice's"},
		"a condition besides":                 {user: userInfo(dean), after: changes{approves, applied}, want: "the rest is Sluice's"},
		"a condition, by whoever must not":    {user: userInfo(anna), before: changes{standing}, after: changes{standing, applied}, want: "does not decide"},
		"in another's name, after the stamps": {user: userInfo(dean), after: changes{approves}, forged: root, want: "must name whoever decides"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			terms := withApprovers(tc.roles...)
			v := newValidator(t, granted, newProject(), newDepartment(terms))
			before, after := newExtension(tc.before...), newExtension(tc.after...)
			if before.Status.Decision == "" && after.Status.Decision != "" {
				if after.Status.DecidedBy = tc.user.Username; tc.forged != "" {
					after.Status.DecidedBy = tc.forged
				}
			}
			response := v.Handler(newScheme(t)).Handle(t.Context(), newRequest(t, tc.user, before, after, "status"))
			if response.Allowed != (tc.want == "") {
				t.Fatalf("allowed = %v: %v", response.Allowed, response.Result)
			}
			if !response.Allowed && (response.Result.Code != http.StatusForbidden || !strings.Contains(response.Result.Message, tc.want)) {
				t.Errorf("%d %q does not say %q", response.Result.Code, response.Result.Message, tc.want)
			}
		})
	}
}

func TestValidateDecisionWithoutProject(t *testing.T) {
	v := newValidator(t, fakeAuthorizer{root: "*"})
	before, after := newExtension(), newExtension(func(e *v1alpha1.Extension) { e.Status.Decision = v1alpha1.ExtensionApproved })
	response := v.Handler(newScheme(t)).Handle(t.Context(), newRequest(t, userInfo(root), before, after, "status"))
	if response.Allowed || !strings.Contains(response.Result.Message, "no project has namespace lab") {
		t.Errorf("response %+v", response)
	}
}
