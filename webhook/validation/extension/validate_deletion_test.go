// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

const requestName = "deletion-1795250000"

// asDeletion makes it the request that lifecycle creates: without the annotation of a requester.
func asDeletion(e *v1alpha1.Extension) {
	asRenewal(e)
	e.Name, e.Spec.Action, e.Annotations = requestName, v1alpha1.ActionDelete, nil
}

// awaitsDeletion is a suspended project whose deletion is requested.
func awaitsDeletion(p *v1alpha1.Project, _ *v1alpha1.ProjectTerms) {
	p.Status.Phase, p.Status.DeletionRequest = v1alpha1.ProjectPendingDeletion, requestName
	p.Status.ClosedAt, p.Status.Next = &metav1.Time{Time: now.AddDate(0, 0, -60)}, nil
}

// unconfirmed is a project that works, and whose owners did not confirm it.
func unconfirmed(p *v1alpha1.Project, terms *v1alpha1.ProjectTerms) {
	awaitsDeletion(p, terms)
	p.Status.ClosedAt, terms.AtExpiry = nil, v1alpha1.ExpiryConfirm
}

// No user requests the deletion of a project, whatever the annotations say, or takes the name of Sluice's request. Guards
// invariant 4 of the design.
func TestUsersCannotRequestDeletion(t *testing.T) {
	forged := func(e *v1alpha1.Extension) { e.Annotations = nil }
	attempts := map[string][]func(*v1alpha1.Extension){
		"as Sluice":                  {asDeletion},
		"in their own name":          {asDeletion, withName("more")},
		"without the annotation":     {asDeletion, withName("more"), forged},
		"an extension with its name": {withName(requestName)},
		"a renewal with its name":    {asRenewal, withName(requestName)},
	}
	for name, changes := range attempts {
		for _, user := range []string{anna, editor, professor, dean, officer, root, robot, ""} {
			t.Run(name+" by "+user, func(t *testing.T) {
				project, department := newTenant(awaitsDeletion)
				v := newValidator(t, fakeAuthorizer{officer: "students", root: "*"}, project, department, newClock("training"))
				extension := newExtension(changes...)
				if user != "" { // what the defaulter records
					setCreatedBy(extension, user)
				}
				response := v.Handler(newScheme(t)).Handle(t.Context(), newRequest(t, userInfo(user), nil, extension, ""))
				if response.Allowed {
					t.Fatal("allowed")
				}
				want := "deletion-"
				if extension.Spec.Action == v1alpha1.ActionDelete {
					want = "requested by Sluice alone"
				}
				if user != "" && (response.Result.Code != http.StatusUnprocessableEntity || !strings.Contains(response.Result.Message, want)) {
					t.Errorf("%d %q, want %q in it", response.Result.Code, response.Result.Message, want)
				}
			})
		}
	}
}

// Only administrators of the project's department decide on its deletion, with a reason, on the project's present request.
// Guards invariant 4 of the design.
func TestValidateDecisionOnDeletion(t *testing.T) {
	type change = func(*v1alpha1.Project, *v1alpha1.ProjectTerms)
	status := func(decision v1alpha1.ExtensionDecision, message, until string) func(*v1alpha1.Extension) {
		return func(e *v1alpha1.Extension) {
			e.Status = v1alpha1.ExtensionStatus{Decision: decision, Message: message}
			if until != "" {
				day := period.MustParseDate(until)
				e.Status.Until = &day
			}
		}
	}
	approved := status(v1alpha1.ExtensionApproved, "the thesis is finished", "")
	dismissed := status(v1alpha1.ExtensionDenied, "the defense is in March", "2027-03-31")
	refused := status(v1alpha1.ExtensionDenied, "it is in use", "")
	inPhase := func(phase v1alpha1.ProjectPhase) change {
		return func(p *v1alpha1.Project, _ *v1alpha1.ProjectTerms) { p.Status.Phase = phase }
	}
	exception := func(set func(*v1alpha1.Project, *v1alpha1.Exception), until string) change {
		return func(p *v1alpha1.Project, _ *v1alpha1.ProjectTerms) {
			day := period.MustParseDate(until)
			set(p, &v1alpha1.Exception{Reason: "an audit", Until: &day})
		}
	}
	administrators := func(name string) change {
		return func(p *v1alpha1.Project, _ *v1alpha1.ProjectTerms) {
			p.Spec.Members = append(p.Spec.Members, v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: name, Role: v1alpha1.RoleDepartmentAdministrator})
		}
	}
	hold := func(p *v1alpha1.Project, e *v1alpha1.Exception) { p.Spec.Hold = e }
	exempt := func(p *v1alpha1.Project, e *v1alpha1.Exception) { p.Spec.Exempt = e }
	tests := map[string]struct {
		user    authenticationv1.UserInfo // dean, if empty
		changes []change
		request func(*v1alpha1.Extension)
		status  func(*v1alpha1.Extension)
		want    string // a part of the denial
	}{
		"an administrator approves":             {status: approved},
		"an administrator dismisses":            {status: dismissed},
		"one by RBAC":                           {user: userInfo(officer), status: approved},
		"one of all departments":                {user: userInfo("chief"), status: approved},
		"one of another department":             {user: userInfo(root), status: approved, want: "cannot decide on it; a user with the role department-administrator in department students can"},
		"another's dismissal":                   {user: userInfo(root), status: dismissed, want: "cannot decide"},
		"an owner":                              {user: userInfo(professor), status: approved, want: "cannot decide"},
		"an owner dismisses":                    {user: userInfo(professor), status: dismissed, want: "cannot decide"},
		"an editor, who approves extensions":    {user: userInfo(editor), status: approved, want: "cannot decide"},
		"a research manager, who approves them": {user: userInfo("kim", "leads"), status: approved, want: "cannot decide"},
		"a member":                              {user: userInfo(anna), status: dismissed, want: "cannot decide"},
		"a service account with a role":         {user: userInfo(robot), status: approved, want: "cannot decide"},
		"an administrator of the project alone": {user: userInfo("local"), changes: []change{administrators("local")}, status: approved, want: "cannot decide on it; a user with the role department-administrator in department students can"},
		"their dismissal":                       {user: userInfo("local"), changes: []change{administrators("local")}, status: dismissed, want: "cannot decide"},
		"a reason that shows nothing":           {status: status(v1alpha1.ExtensionApproved, "\u200b\u00a0\u2060", ""), want: "status.message: required"},
		"without a reason":                      {status: status(v1alpha1.ExtensionApproved, " ", ""), want: "status.message: required: the owners of project thesis read in it why its deletion is approved"},
		"a dismissal without a reason":          {status: status(v1alpha1.ExtensionDenied, "", "2027-03-31"), want: "why its deletion is dismissed"},
		"an approval with an end":               {status: status(v1alpha1.ExtensionApproved, "old", "2027-03-31"), want: "status.until: 2027-03-31: is for a dismissal"},
		"a dismissal without an end":            {status: refused, want: "status.until: required: project thesis stays suspended until then"},
		"until today":                           {status: status(v1alpha1.ExtensionDenied, "wait", "2026-11-21"), want: "give a day after today (2026-11-21, Europe/Berlin) and at most 5 years ahead (2031-11-21)"},
		"until tomorrow":                        {status: status(v1alpha1.ExtensionDenied, "wait", "2026-11-22")},
		"for five years":                        {status: status(v1alpha1.ExtensionDenied, "wait", "2031-11-21")},
		"for longer":                            {status: status(v1alpha1.ExtensionDenied, "wait", "2031-11-22"), want: "status.until: 2031-11-22: give a day"},
		"an unconfirmed project":                {changes: []change{unconfirmed}, status: approved},
		"an unconfirmed one is kept":            {changes: []change{unconfirmed}, status: refused},
		"an unconfirmed one with an end":        {changes: []change{unconfirmed}, status: dismissed, want: "status.until: 2027-03-31: omit it: the owners of project thesis did not confirm it"},
		"a project on hold":                     {changes: []change{exception(hold, "2026-11-21")}, status: approved, want: "on hold until the end of 2026-11-21 (an audit); Sluice withdraws the request"},
		"a dismissal on hold":                   {changes: []change{exception(hold, "2026-11-21")}, status: dismissed, want: "on hold"},
		"a hold that ended":                     {changes: []change{exception(hold, "2026-11-20")}, status: approved},
		"an exempt project":                     {changes: []change{exception(exempt, "2026-12-31")}, status: approved, want: "exempt from expiry until the end of 2026-12-31 (an audit)"},
		"a department without validity":         {changes: []change{func(_ *v1alpha1.Project, terms *v1alpha1.ProjectTerms) { terms.Validity = nil }}, status: approved, want: "do not expire"},
		"a renewed project":                     {changes: []change{inPhase(v1alpha1.ProjectActive)}, status: approved, want: "does not await the approval of its deletion (phase Active)"},
		"a project suspended again":             {changes: []change{inPhase(v1alpha1.ProjectSuspended)}, status: approved, want: "(phase Suspended)"},
		"a project that is being deleted":       {changes: []change{inPhase(v1alpha1.ProjectDeleting)}, status: approved, want: "is being deleted already"},
		"another request":                       {request: withName("deletion-1"), status: approved, want: "it is not the request to delete project thesis (status.deletionRequest is \"" + requestName + "\")"},
		"the request of another project":        {request: withTarget("sluice.dev/v1alpha1", "Project", "other"), status: approved, want: "not the request"},
		"before the request is recorded":        {changes: []change{func(p *v1alpha1.Project, _ *v1alpha1.ProjectTerms) { p.Status.DeletionRequest = "" }}, status: approved, want: `status.deletionRequest is ""`},
		"with another field": {status: func(e *v1alpha1.Extension) {
			approved(e)
			e.Status.NewEnd = &metav1.Time{Time: now}
		}, want: "Sluice writes the other fields"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			project, department := newTenant(append([]change{awaitsDeletion}, tc.changes...)...)
			department.Spec.Extensions.Approvers = []v1alpha1.ApproverRole{"editor", "research-manager"}
			department.Spec.Projects.Renewals.Approvers = department.Spec.Extensions.Approvers
			v := newValidator(t, fakeAuthorizer{officer: "students", root: "others", "chief": "*"}, project, department)
			user := tc.user
			if user.Username == "" {
				user = userInfo(dean)
			}
			before := newExtension(asDeletion)
			if tc.request != nil {
				tc.request(before)
			}
			after := before.DeepCopy()
			tc.status(after)
			after.Status.DecidedBy = user.Username
			response := v.Handler(newScheme(t)).Handle(t.Context(), newRequest(t, user, before, after, "status"))
			if response.Allowed != (tc.want == "") {
				t.Fatalf("allowed = %v: %v", response.Allowed, response.Result)
			}
			if !response.Allowed && (response.Result.Code != http.StatusForbidden || !strings.Contains(response.Result.Message, tc.want)) {
				t.Errorf("%d %q, want %q in it", response.Result.Code, response.Result.Message, tc.want)
			}
		})
	}
}
