// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
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

// newTenant returns a project that expires in ten days, and its department.
func newTenant(changes ...func(*v1alpha1.Project, *v1alpha1.ProjectTerms)) (*v1alpha1.Project, *v1alpha1.Department) {
	project, department := newProject(), newDepartment()
	end := metav1.NewTime(now.AddDate(0, 0, 10))
	project.Status.Phase, project.Status.ExpiresAt = v1alpha1.ProjectExpiring, &end
	project.Status.Next = &v1alpha1.ProjectStep{Phase: v1alpha1.ProjectExpired, At: end}
	department.Spec.Projects = v1alpha1.ProjectTerms{
		Validity: ptr.To(period.MustParsePeriod("P6M")), AtExpiry: v1alpha1.ExpiryExpire,
		Renewals: v1alpha1.RenewalTerms{SelfService: ptr.To[int32](1), Approvers: []v1alpha1.ApproverRole{"department-administrator"}},
	}
	department.Spec.Extensions.Approvers = []v1alpha1.ApproverRole{"editor"}
	department.Spec.Notices = v1alpha1.NoticeTerms{
		TimeZone: "Europe/Berlin", ProjectExpiry: []period.Duration{period.MustParseDuration("7d"), period.MustParseDuration("30d")},
	}
	for _, change := range changes {
		change(project, &department.Spec.Projects)
	}
	return project, department
}

func inPhase(phase v1alpha1.ProjectPhase) func(*v1alpha1.Project, *v1alpha1.ProjectTerms) {
	return func(p *v1alpha1.Project, _ *v1alpha1.ProjectTerms) { p.Status.Phase = phase }
}

func withRenewals(n int32) func(*v1alpha1.Project, *v1alpha1.ProjectTerms) {
	return func(p *v1alpha1.Project, _ *v1alpha1.ProjectTerms) {
		p.Status.Expiry = &v1alpha1.ProjectExpiry{SelfServiceRenewals: n}
	}
}

func requestedBy(user string) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) {
		asRenewal(e)
		withCreatedBy(user)(e)
	}
}

func onBehalfOf(address v1alpha1.EmailAddress) func(*v1alpha1.Extension) {
	return func(e *v1alpha1.Extension) { e.Spec.OnBehalfOf = address }
}

// Only an owner, or an administrator of the department for an owner, renews a project, and only one that is about to
// expire. Guards invariant 4 of the design.
func TestValidateRenewal(t *testing.T) {
	const ben = "ben@example.org"
	owner := newExtension(requestedBy(professor))
	other := func(changes ...func(*v1alpha1.Extension)) client.Object {
		return newExtension(append([]func(*v1alpha1.Extension){requestedBy(professor), withName("other")}, changes...)...)
	}
	condition := func(status metav1.ConditionStatus, reason string) func(*v1alpha1.Extension) {
		return func(e *v1alpha1.Extension) {
			e.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: status, Reason: reason}}
		}
	}
	decided := func(decision v1alpha1.ExtensionDecision) func(*v1alpha1.Extension) {
		return func(e *v1alpha1.Extension) { e.Status.Decision = decision }
	}
	type change = func(*v1alpha1.Project, *v1alpha1.ProjectTerms)
	yesterday, tomorrow := period.DateOf(now.AddDate(0, 0, -1), time.UTC), period.DateOf(now.AddDate(0, 0, 1), time.UTC)
	exempt := func(until period.Date) change {
		return func(p *v1alpha1.Project, _ *v1alpha1.ProjectTerms) {
			p.Spec.Exempt = &v1alpha1.Exception{Reason: "a course", Until: &until}
		}
	}
	confirm := func(_ *v1alpha1.Project, terms *v1alpha1.ProjectTerms) { terms.AtExpiry = v1alpha1.ExpiryConfirm }
	unlimited := func(_ *v1alpha1.Project, terms *v1alpha1.ProjectTerms) { terms.Renewals.SelfService = nil }
	tests := map[string]struct {
		user      string // the professor, if empty
		groups    []string
		extension *v1alpha1.Extension // owner, if nil
		changes   []change
		in        []client.Object
		code      int32
		want      []string // parts of the denial
		warns     string
	}{
		"an owner":                      {},
		"an owner, expired":             {changes: []change{inPhase(v1alpha1.ProjectExpired)}},
		"an owner, late":                {changes: []change{confirm, inPhase(v1alpha1.ProjectPendingDeletion)}},
		"an administrator":              {user: dean, extension: newExtension(requestedBy(dean), onBehalfOf(ben))},
		"one by RBAC":                   {user: officer, extension: newExtension(requestedBy(officer), onBehalfOf("Ben@Example.org"))},
		"a member":                      {user: anna, extension: newExtension(requestedBy(anna)), code: http.StatusForbidden, want: []string{"anna@example.org is no owner of project thesis; ask an owner (Prof. Ada, Ben) to renew it, or an administrator of department students"}},
		"a member for Ben":              {user: anna, extension: newExtension(requestedBy(anna), onBehalfOf(ben)), code: http.StatusForbidden, want: []string{"is no owner"}},
		"an editor":                     {user: editor, extension: newExtension(requestedBy(editor)), code: http.StatusForbidden, want: []string{"is no owner"}},
		"a manager":                     {user: "kim", groups: []string{"leads"}, extension: newExtension(requestedBy("kim"), onBehalfOf(ben)), code: http.StatusForbidden, want: []string{"is no owner"}},
		"an owner's address":            {user: ben, extension: newExtension(requestedBy(ben)), code: http.StatusForbidden, want: []string{"is no owner"}},
		"a nameless user":               {user: "-", extension: newExtension(requestedBy("-")), code: http.StatusForbidden, want: []string{"is no owner"}},
		"an administrator for no owner": {user: dean, extension: newExtension(requestedBy(dean)), code: http.StatusUnprocessableEntity, want: []string{"spec.onBehalfOf", "you are no owner of project thesis", "Prof. Ada, Ben"}},
		"an administrator for a member": {user: dean, extension: newExtension(requestedBy(dean), onBehalfOf(anna)), code: http.StatusUnprocessableEntity, want: []string{"spec.onBehalfOf", "must be the address of an owner"}},
		"an owner for an owner":         {extension: newExtension(requestedBy(professor), onBehalfOf(ben)), code: http.StatusUnprocessableEntity, want: []string{"spec.onBehalfOf", "in your own name"}},
		"in an owner's name":            {user: anna, code: http.StatusForbidden, want: []string{"must name the requester"}},
		"another's project": {
			extension: newExtension(requestedBy(professor), withTarget("sluice.dev/v1alpha1", "Project", "other")),
			code:      http.StatusUnprocessableEntity, want: []string{"spec.target.name", "must be thesis", "namespace lab"},
		},
		"an active project": {
			changes: []change{inPhase(v1alpha1.ProjectActive), func(p *v1alpha1.Project, _ *v1alpha1.ProjectTerms) {
				p.Status.Next.At = metav1.Date(2027, 3, 31, 22, 0, 0, 0, time.UTC)
			}},
			code: http.StatusForbidden, want: []string{"not about to expire (phase Active)", "it can be renewed from 1 March 2027 on"},
		},
		"a project in a short period": { // 30 days before its end it was not created yet
			changes: []change{inPhase(v1alpha1.ProjectActive), func(p *v1alpha1.Project, _ *v1alpha1.ProjectTerms) {
				p.Status.Next.At = metav1.NewTime(now.AddDate(0, 0, 20))
			}},
			code: http.StatusForbidden, want: []string{"from " + now.AddDate(0, 0, 13).Format(dayFormat) + " on"},
		},
		"a project before its anniversary": {
			changes: []change{confirm, inPhase(v1alpha1.ProjectActive), func(p *v1alpha1.Project, _ *v1alpha1.ProjectTerms) {
				p.Status.ExpiresAt = &metav1.Time{Time: time.Date(2027, 3, 31, 22, 0, 0, 0, time.UTC)}
			}},
			code: http.StatusForbidden, want: []string{"from 1 April 2027 on"},
		},
		"a project without a date": {
			changes: []change{inPhase(""), func(p *v1alpha1.Project, _ *v1alpha1.ProjectTerms) { p.Status.Next = nil }},
			code:    http.StatusForbidden, want: []string{"has no phase yet, and can be renewed once its owners were warned of the expiry"},
		},
		"a project that ends by itself": {changes: []change{inPhase(v1alpha1.ProjectDeleting)}, code: http.StatusForbidden, want: []string{"phase Deleting"}},
		"a project without validity": {
			changes: []change{func(_ *v1alpha1.Project, terms *v1alpha1.ProjectTerms) { terms.Validity = nil }},
			code:    http.StatusForbidden, want: []string{"projects of department students do not expire"},
		},
		"an exempt project": {changes: []change{exempt(tomorrow)}, code: http.StatusForbidden, want: []string{"exempt from expiry until the end of " + tomorrow.String() + " (a course)"}},
		"a past exemption":  {changes: []change{exempt(yesterday)}},
		"a project on hold": {
			changes: []change{func(p *v1alpha1.Project, _ *v1alpha1.ProjectTerms) {
				p.Spec.Hold = &v1alpha1.Exception{Reason: "an audit"}
			}},
			code: http.StatusForbidden, want: []string{"is on hold (an audit)", "has removed the hold"},
		},
		"one waits":                 {in: []client.Object{other()}, code: http.StatusForbidden, want: []string{"has the renewal other, which waits for a decision by a user with the role department-administrator"}},
		"one waits, asked":          {in: []client.Object{other(condition(metav1.ConditionFalse, v1alpha1.ReasonAwaitingDecision))}, code: http.StatusForbidden, want: []string{"which waits"}},
		"one is approved":           {in: []client.Object{other(decided(v1alpha1.ExtensionApproved), condition(metav1.ConditionFalse, v1alpha1.ReasonAwaitingDecision))}, code: http.StatusForbidden, want: []string{"which was approved and takes effect within moments"}},
		"one was applied":           {in: []client.Object{other(decided(v1alpha1.ExtensionApproved), condition(metav1.ConditionTrue, "Renewed"))}},
		"one was too late":          {in: []client.Object{other(decided(v1alpha1.ExtensionApproved), condition(metav1.ConditionFalse, v1alpha1.ReasonAlreadyRenewed))}},
		"one was denied":            {in: []client.Object{other(decided(v1alpha1.ExtensionDenied))}},
		"one is of another project": {in: []client.Object{other(withTarget("sluice.dev/v1alpha1", "Project", "foreign"))}},
		"twenty others wait":        {in: waitingExtensions(20)},
		"beyond self-service":       {changes: []change{withRenewals(1)}, warns: "has had all its automatic renewals (1 of 1): it waits for a decision by a user with the role department-administrator"},
		"no default self-service":   {changes: []change{unlimited}, warns: "renews no project automatically"},
		"a confirmation":            {changes: []change{unlimited, confirm, withRenewals(12)}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			project, department := newTenant(tc.changes...)
			user, extension := tc.user, tc.extension
			if user == "" {
				user = professor
			}
			if extension == nil {
				extension = owner
			}
			v := newValidator(t, fakeAuthorizer{officer: "students", root: "others"}, append(tc.in, project, department)...)
			response := v.Handler(newScheme(t)).Handle(t.Context(), newRequest(t, userInfo(user, tc.groups...), nil, extension, ""))
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
			if strings.Contains(response.Result.Message, ben) && extension.Spec.OnBehalfOf == "" && user != ben {
				t.Errorf("%q has the address of an owner", response.Result.Message)
			}
			warnings := strings.Join(response.Warnings, "\n")
			if (warnings == "") != (tc.warns == "") || !strings.Contains(warnings, tc.warns) {
				t.Errorf("warnings %q, want %q", warnings, tc.warns)
			}
		})
	}
}

// waitingExtensions returns Extensions without a decision.
func waitingExtensions(n int) (all []client.Object) {
	for i := range n {
		all = append(all, newExtension(withName("open-"+string(rune('a'+i)))))
	}
	return all
}

// The approvers of renewals are not those of extensions. Guards invariant 4 of the design.
func TestValidateDecisionOnRenewal(t *testing.T) {
	tests := map[string]struct {
		user authenticationv1.UserInfo
		want string // a part of the denial
	}{
		"an administrator":                       {user: userInfo(dean)},
		"one by RBAC":                            {user: userInfo(officer)},
		"an approver of extensions alone":        {user: userInfo(editor), want: "editor@example.org cannot decide on it; a user with the role department-administrator"},
		"the owner":                              {user: userInfo(professor), want: "cannot decide"},
		"an administrator of another department": {user: userInfo(root), want: "cannot decide"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			project, department := newTenant()
			v := newValidator(t, fakeAuthorizer{officer: "students", root: "others"}, project, department)
			before := newExtension(requestedBy(professor))
			after := before.DeepCopy()
			after.Status.Decision, after.Status.DecidedBy = v1alpha1.ExtensionApproved, tc.user.Username
			response := v.Handler(newScheme(t)).Handle(t.Context(), newRequest(t, tc.user, before, after, "status"))
			if response.Allowed != (tc.want == "") || !response.Allowed && !strings.Contains(response.Result.Message, tc.want) {
				t.Errorf("allowed = %v: %v", response.Allowed, response.Result)
			}
		})
	}
}
