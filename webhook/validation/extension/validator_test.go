// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

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

// One user's requests leave room for those of others, of the owners and of the approvers, and concern the namespace's
// own project alone. Guards invariant 4 of the design.
func TestValidateCreate(t *testing.T) {
	many := func(n int, decision v1alpha1.ExtensionDecision) (all []client.Object) {
		for i := range n {
			all = append(all, newExtension(withName(fmt.Sprint("open-", i)), func(e *v1alpha1.Extension) { e.Status.Decision = decision }))
		}
		return all
	}
	// waiting has open Extensions of others, three of each.
	waiting := func(n int, decision v1alpha1.ExtensionDecision) []client.Object {
		all := many(n, decision)
		for i := range all {
			withCreatedBy(fmt.Sprintf("student-%d@example.org", i/3))(all[i].(*v1alpha1.Extension))
		}
		return all
	}
	training := newClock("training")
	orphan := newClock("training", func(s *v1alpha1.WorkloadClockStatus) { s.CreatedBy = "" })
	// busy is the project after n requests of anna, an hour apart, and one of another user.
	busy := func(n int) []client.Object {
		project := newProject()
		add := func(user string, ago time.Duration) {
			project.Status.ExtensionRequests = append(project.Status.ExtensionRequests, v1alpha1.ExtensionRequest{
				Requester: v1alpha1.CreatorLabel(user), At: metav1.NewTime(now.Add(-ago)),
			})
		}
		add(anna, 24*time.Hour)
		for i := range n {
			add(anna, time.Duration(n-i)*time.Hour)
		}
		add(editor, time.Minute)
		return []client.Object{training, project}
	}
	nothing := func(terms *v1alpha1.ExtensionTerms) { terms.SelfService = 0 }
	tests := map[string]struct {
		user      string // anna, if empty
		extension *v1alpha1.Extension
		in        []client.Object
		terms     []func(*v1alpha1.ExtensionTerms)
		code      int32
		want      []string // parts of the denial
		warns     string
	}{
		"within the terms":           {extension: newExtension(), in: []client.Object{training}},
		"more than the limit":        {extension: newExtension(withDuration("48h")), in: []client.Object{training}, warns: "grants at most 24h automatically: 48h wait for a decision by a user with the role department-administrator"},
		"without self-service":       {extension: newExtension(), in: []client.Object{training}, terms: []func(*v1alpha1.ExtensionTerms){nothing}, warns: "department students grants no extension automatically"},
		"a namespace of no project":  {extension: newExtension(func(e *v1alpha1.Extension) { e.Namespace = "default" }), code: http.StatusForbidden, want: []string{"no project owns namespace default"}},
		"a workload without a clock": {extension: newExtension(withTarget("batch/v1", "Job", "other")), in: []client.Object{training}, code: http.StatusUnprocessableEntity, want: []string{"spec.target", "Job other", "sluice clocks -n lab"}},
		"a pod of the Job":           {extension: newExtension(withTarget("v1", "Pod", "training-abcde")), in: []client.Object{training}, code: http.StatusUnprocessableEntity, want: []string{"the Job, not one of its pods"}},
		"a Job of another group":     {extension: newExtension(withTarget("batch.volcano.sh/v1", "Job", "training")), in: []client.Object{training}, code: http.StatusUnprocessableEntity, want: []string{"Job training"}},
		"another version":            {extension: newExtension(withTarget("batch/v1beta1", "Job", "training")), in: []client.Object{training}},
		"no version":                 {extension: newExtension(withTarget("a/b/c", "Job", "training")), in: []client.Object{training}, code: http.StatusUnprocessableEntity, want: []string{"spec.target.apiVersion", "batch/v1"}},
		"a deleted workload":         {extension: newExtension(), in: []client.Object{newClock("training", func(s *v1alpha1.WorkloadClockStatus) { s.MissingSince = &metav1.Time{Time: now} })}, code: http.StatusUnprocessableEntity, want: []string{"this workload no longer exists"}},
		"no time limit":              {extension: newExtension(), in: []client.Object{newClock("training", func(s *v1alpha1.WorkloadClockStatus) { s.Limit = nil })}, warns: "Job training has no time limit at present"},
		"below the maximum":          {extension: newExtension(), in: []client.Object{newClock("training", withExtensions(107))}},
		"at the maximum":             {extension: newExtension(), in: []client.Object{newClock("training", withExtensions(108))}, code: http.StatusUnprocessableEntity, want: []string{"108 times"}},
		"a used name":                {extension: newExtension(withName("e1")), in: []client.Object{newClock("training", withExtensions(2))}, code: http.StatusUnprocessableEntity, want: []string{"metadata.name", "choose another"}},
		"in another user's name":     {extension: newExtension(withCreatedBy(dean)), in: []client.Object{training}, code: http.StatusForbidden, want: []string{"must name the requester"}},
		"two of the user wait":       {extension: newExtension(), in: append(many(2, ""), training)},
		"three of the user wait":     {extension: newExtension(), in: append(many(3, ""), training), code: http.StatusForbidden, want: []string{"anna@example.org has 3 extensions without a decision", "department-administrator", "delete"}},
		"nine wait":                  {extension: newExtension(), in: append(waiting(9, ""), training)},
		"ten wait":                   {extension: newExtension(), in: append(waiting(10, ""), training), code: http.StatusForbidden, want: []string{"namespace lab has 10 extensions without a decision", "department-administrator", "delete"}},
		"ten wait, an owner":         {user: professor, extension: newExtension(withCreatedBy(professor)), in: append(waiting(10, ""), training)},
		"ten wait, an approver":      {user: dean, extension: newExtension(withCreatedBy(dean)), in: append(waiting(10, ""), training)},
		"ten wait, an administrator": {user: officer, extension: newExtension(withCreatedBy(officer)), in: append(waiting(19, ""), training)},
		"twenty wait, an owner":      {user: professor, extension: newExtension(withCreatedBy(professor)), in: append(waiting(20, ""), training), code: http.StatusForbidden, want: []string{"namespace lab has 20 extensions"}},
		"another member":             {user: editor, extension: newExtension(withCreatedBy(editor)), in: []client.Object{training}, code: http.StatusForbidden, want: []string{"Job training was created by anna@example.org, and editor@example.org cannot extend it; ask anna@example.org, an owner or research manager of project thesis, or a user with the role department-administrator"}},
		"another member who decides": {user: editor, extension: newExtension(withCreatedBy(editor)), in: []client.Object{training}, terms: []func(*v1alpha1.ExtensionTerms){withApprovers("editor")}},
		"an owner":                   {user: professor, extension: newExtension(withCreatedBy(professor)), in: []client.Object{training}},
		"a research manager":         {user: lead, extension: newExtension(withCreatedBy(lead)), in: []client.Object{training}},
		"the department's member":    {user: dean, extension: newExtension(withCreatedBy(dean)), in: []client.Object{training}, terms: []func(*v1alpha1.ExtensionTerms){withApprovers("editor")}},
		"the department's officer":   {user: officer, extension: newExtension(withCreatedBy(officer)), in: []client.Object{training}, terms: []func(*v1alpha1.ExtensionTerms){withApprovers("editor")}},
		"a system administrator":     {user: root, extension: newExtension(withCreatedBy(root)), in: []client.Object{training}},
		"no known creator":           {extension: newExtension(), in: []client.Object{orphan}, code: http.StatusForbidden, want: []string{"has no known creator, and anna@example.org cannot extend it; ask an owner"}},
		"no known creator, an owner": {user: professor, extension: newExtension(withCreatedBy(professor)), in: []client.Object{orphan}},
		"nine requests in a day":     {extension: newExtension(), in: busy(9)},
		"ten requests in a day":      {extension: newExtension(), in: busy(10), code: http.StatusForbidden, want: []string{"anna@example.org has requested 10 extensions in namespace lab within 24 hours", "deleted ones included", "request again at 2026-11-22 06:00 UTC"}},
		"a renewal after ten":        {extension: newExtension(asRenewal), in: busy(10), code: http.StatusForbidden, want: []string{"has requested 10 extensions"}},
		"ten requests of another":    {user: professor, extension: newExtension(withCreatedBy(professor)), in: busy(10)},
		"many were decided":          {extension: newExtension(), in: append(many(30, v1alpha1.ExtensionDenied), training)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := newValidator(t, fakeAuthorizer{officer: "students", root: "*"}, append(withProject(tc.in), newDepartment(tc.terms...))...)
			groups := map[string]string{lead: "leads"}[tc.user]
			response := v.Handler(newScheme(t)).Handle(t.Context(), newRequest(t, userInfo(cmp.Or(tc.user, anna), groups), nil, tc.extension, ""))
			if response.Allowed != (tc.code == 0) {
				t.Fatalf("allowed = %v: %v", response.Allowed, response.Result)
			}
			if !response.Allowed && response.Result.Code != tc.code {
				t.Errorf("code %d, want %d", response.Result.Code, tc.code)
			}
			for _, want := range tc.want {
				if !strings.Contains(response.Result.Message, want) {
					t.Errorf("%q want %q in it", response.Result.Message, want)
				}
			}
			warnings := strings.Join(response.Warnings, "\n")
			if (warnings == "") != (tc.warns == "") || !strings.Contains(warnings, tc.warns) {
				t.Errorf("warnings %q, want %q", warnings, tc.warns)
			}
		})
	}
}

// withProject adds the project, unless the objects have one.
func withProject(objects []client.Object) []client.Object {
	for _, object := range objects {
		if _, ok := object.(*v1alpha1.Project); ok {
			return objects
		}
	}
	return append(objects, newProject())
}

func TestValidateDecision(t *testing.T) {
	granted := fakeAuthorizer{officer: "students", root: "*"}
	approves := func(e *v1alpha1.Extension) { e.Status.Decision = v1alpha1.ExtensionApproved }
	denies := func(e *v1alpha1.Extension) { e.Status.Decision = v1alpha1.ExtensionDenied }
	others := withTarget("sluice.dev/v1alpha1", "Project", "other")
	writesMessage := func(e *v1alpha1.Extension) { e.Status.Message = "hello" }
	decided := func(e *v1alpha1.Extension) {
		e.Status = v1alpha1.ExtensionStatus{Decision: v1alpha1.ExtensionApproved, DecidedBy: dean}
	}
	setsEnd := func(e *v1alpha1.Extension) { e.Status.NewEnd = &metav1.Time{Time: now} }
	applied := func(e *v1alpha1.Extension) {
		e.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue}}
	}
	type changes = []func(*v1alpha1.Extension)
	tests := map[string]struct {
		user          authenticationv1.UserInfo
		roles         []v1alpha1.ApproverRole
		before, after changes
		forged        string // the user in decidedBy
		want          string // a part of the denial
	}{
		"an administrator of the department":  {user: userInfo(dean), after: changes{approves, writesMessage}},
		"one by RBAC":                         {user: userInfo(officer), after: changes{approves}},
		"an administrator of all departments": {user: userInfo(root), after: changes{approves}},
		"a member without the role":           {user: userInfo(anna), after: changes{approves}, want: "anna@example.org cannot decide on it; a user with the role department-administrator in department students or project thesis can"},
		"an editor who is no approver":        {user: userInfo(editor), after: changes{approves}, want: "cannot decide"},
		"an editor who is an approver":        {user: userInfo(editor), roles: []v1alpha1.ApproverRole{"editor"}, after: changes{approves}},
		"a member of a group":                 {user: userInfo(anna, "leads"), roles: []v1alpha1.ApproverRole{"research-manager"}, after: changes{approves}},
		"a user with the name of a group":     {user: userInfo("leads"), roles: []v1alpha1.ApproverRole{"research-manager"}, after: changes{approves}, want: "cannot decide"},
		"a service account":                   {user: userInfo(robot), roles: []v1alpha1.ApproverRole{"editor"}, after: changes{approves}},
		"a service account of the same name":  {user: userInfo("system:serviceaccount:lab:robot"), roles: []v1alpha1.ApproverRole{"editor"}, after: changes{approves}, want: "cannot decide"},
		"only system administrators":          {user: userInfo(root), roles: []v1alpha1.ApproverRole{"system-administrator"}, after: changes{approves}},
		"not the department's administrator":  {user: userInfo(officer), roles: []v1alpha1.ApproverRole{"system-administrator"}, after: changes{approves}, want: "system-administrator"},
		"not a member":                        {user: userInfo(dean), roles: []v1alpha1.ApproverRole{"system-administrator"}, after: changes{approves}, want: "cannot decide"},
		"an administrator who is no approver": {user: userInfo(root), roles: []v1alpha1.ApproverRole{"editor"}, after: changes{approves}, want: "editor"},
		"nothing changes":                     {user: userInfo(anna), before: changes{decided}, after: changes{decided}},
		"a message without a decision":        {user: userInfo(dean), after: changes{writesMessage}, want: "status.decision: must be Approved or Denied"},
		"a message after the decision":        {user: userInfo(dean), before: changes{decided}, after: changes{decided, writesMessage}, want: "a decision is final"},
		"another decision":                    {user: userInfo(dean), before: changes{decided}, after: changes{decided, func(e *v1alpha1.Extension) { e.Status.Decision = v1alpha1.ExtensionDenied }}, want: "a decision is final"},
		"a decision and a new end":            {user: userInfo(dean), after: changes{approves, setsEnd}, want: "Sluice writes the other fields"},
		"a decision and a condition":          {user: userInfo(dean), after: changes{approves, applied}, want: "Sluice writes the other fields"},
		"a condition by another user":         {user: userInfo(anna), before: changes{decided}, after: changes{decided, applied}, want: "cannot decide"},
		"the renewal of another's project":    {user: userInfo(dean), before: changes{asRenewal, others}, after: changes{asRenewal, others, approves}, want: "must be thesis, the project of namespace lab"},
		"denied, of another's project":        {user: userInfo(dean), before: changes{asRenewal, others}, after: changes{asRenewal, others, denies}},
		"in another user's name":              {user: userInfo(dean), after: changes{approves}, forged: root, want: "must name the approver"},
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
				t.Errorf("%d %q want %q in it", response.Result.Code, response.Result.Message, tc.want)
			}
		})
	}
}

func TestValidateDecisionWithoutProject(t *testing.T) {
	v := newValidator(t, fakeAuthorizer{root: "*"})
	before, after := newExtension(), newExtension(func(e *v1alpha1.Extension) { e.Status.Decision = v1alpha1.ExtensionApproved })
	response := v.Handler(newScheme(t)).Handle(t.Context(), newRequest(t, userInfo(root), before, after, "status"))
	if response.Allowed || !strings.Contains(response.Result.Message, "no project owns namespace lab") {
		t.Errorf("response %+v", response)
	}
}
