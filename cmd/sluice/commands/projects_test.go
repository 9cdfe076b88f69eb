// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

var projectsNow = time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)

// projectTime returns midnight in Berlin's winter, days after projectsNow.
func projectTime(days int) *metav1.Time {
	return &metav1.Time{Time: time.Date(2026, 11, 23+days, 23, 0, 0, 0, time.UTC)}
}

func newProject(name, department string, status v1alpha1.ProjectStatus, changes ...func(*v1alpha1.Project)) v1alpha1.Project {
	project := v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ProjectSpec{Department: department, Owners: []v1alpha1.Owner{
			{Contact: v1alpha1.Contact{Name: "Anna Müller", Email: "anna.mueller@example.org"}, User: "anna.mueller@example.org"},
		}},
		Status: status,
	}
	for _, change := range changes {
		change(&project)
	}
	return project
}

// expiringIn returns the status of a project with a next step in some days.
func expiringIn(days int, phase, next v1alpha1.ProjectPhase) v1alpha1.ProjectStatus {
	return v1alpha1.ProjectStatus{
		Phase: phase, Periods: 1, ExpiresAt: projectTime(days), Next: &v1alpha1.ProjectStep{Phase: next, At: *projectTime(days)},
		Expiry: &v1alpha1.ProjectExpiry{Validity: "P6M"},
	}
}

func projectCondition(conditionType, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// expiringProjects returns a project in each state of its expiry.
func expiringProjects() []v1alpha1.Project {
	expiring := expiringIn(6, v1alpha1.ProjectExpiring, v1alpha1.ProjectExpired)
	expiring.Expiry.FirstWarnedAt, expiring.Expiry.LastWarnedAt = projectTime(-24), projectTime(-1)
	blocked := expiringIn(-2, v1alpha1.ProjectExpiring, v1alpha1.ProjectExpired)
	blocked.Expiry.FirstWarnedAt = projectTime(-32)
	blocked.Conditions = []metav1.Condition{projectCondition(v1alpha1.ConditionExpiryBlocked, "MailPaused", "mail is paused")}
	confirm := expiringIn(20, v1alpha1.ProjectActive, v1alpha1.ProjectPendingDeletion)
	confirm.Next.At = *projectTime(50)
	confirm.Expiry.SelfServiceRenewals = 3
	confirm.Expiry.LastRenewal = &v1alpha1.ProjectRenewal{Extension: "e", UID: "u", At: *projectTime(-345)}
	until := func(text string) *period.Date { return ptr.To(period.MustParseDate(text)) }
	return []v1alpha1.Project{
		newProject("campus-assistant", "h2-all", v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectActive}),
		newProject("protein-folding", "h2-research", confirm, func(p *v1alpha1.Project) {
			p.Spec.Owners = append(p.Spec.Owners, v1alpha1.Owner{Contact: v1alpha1.Contact{Email: "ben@example.org"}})
		}),
		newProject("thesis-mueller", "h2-students", expiring),
		newProject("thesis-schmidt", "h2-students", blocked),
		newProject("course-ml", "h2-students", expiringIn(90, v1alpha1.ProjectActive, v1alpha1.ProjectExpired)),
		newProject("old", "h2-students", v1alpha1.ProjectStatus{
			Phase: v1alpha1.ProjectExpired, ExpiresAt: projectTime(-8), ClosedAt: projectTime(-8),
		}),
		newProject("audit", "h2-research", v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectActive}, func(p *v1alpha1.Project) {
			p.Spec.Hold = &v1alpha1.Exception{Reason: "an audit reads its \x1b[31mdata", Until: until("2027-01-31")}
			p.Annotations = map[string]string{v1alpha1.HeldByAnnotation: "dept-admin@example.org"}
			p.Status.Conditions = []metav1.Condition{projectCondition(v1alpha1.ConditionHeld, v1alpha1.ReasonHoldInSpec, "")}
		}),
		newProject("demo", "h2-students", v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectActive}, func(p *v1alpha1.Project) {
			p.Spec.Hold = &v1alpha1.Exception{Reason: "spring", Until: until("2026-05-31")}
			p.Spec.Exempt = &v1alpha1.Exception{Reason: "shown to visitors"}
		}),
		newProject("requested", "h2-students", expiringIn(-1, v1alpha1.ProjectExpiring, v1alpha1.ProjectExpired), func(p *v1alpha1.Project) {
			p.Status.Conditions = []metav1.Condition{
				projectCondition(v1alpha1.ConditionHeld, v1alpha1.ReasonExtensionPending, "a renewal was requested"),
			}
		}),
		newProject("late", "h2-students", expiringIn(-1, v1alpha1.ProjectExpiring, v1alpha1.ProjectExpired), func(p *v1alpha1.Project) {
			p.Spec.Hold = &v1alpha1.Exception{Reason: "spring", Until: until("2026-05-31")}
		}),
	}
}

func TestProjectTable(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	rows := newProjectRows(expiringProjects(), projectsNow)
	for format, wide := range map[string]bool{"table": false, "wide": true} {
		var out bytes.Buffer
		if err := projectTable(rows, projectsNow, berlin).Write(&out, wide); err != nil {
			t.Fatal(err)
		}
		golden.Assert(t, out.String(), "projects/"+format+".txt")
	}
	golden.Assert(t, jsonText(t, projectDocument{Now: projectsNow, Projects: rows}), "projects/projects.json")
}

func TestProjectsWithAStepWithin(t *testing.T) {
	for within, want := range map[time.Duration][]string{
		time.Hour:            {"thesis-schmidt", "late", "requested"},
		7 * 24 * time.Hour:   {"thesis-schmidt", "late", "requested", "thesis-mueller"},
		30 * 24 * time.Hour:  {"thesis-schmidt", "late", "requested", "thesis-mueller", "protein-folding"},
		365 * 24 * time.Hour: {"thesis-schmidt", "late", "requested", "thesis-mueller", "protein-folding", "course-ml"},
	} {
		var got []string
		for _, row := range newProjectRows(expiringProjects(), projectsNow) {
			if row.hasStepBefore(projectsNow, projectsNow.Add(within)) {
				got = append(got, row.Name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("within %s (-want +got)\n%s", within, diff)
		}
	}
}

func TestListProjects(t *testing.T) {
	var objects []client.Object
	samples := expiringProjects()
	for i := range samples {
		objects = append(objects, &samples[i])
	}
	admin := newFakeClient(t, interceptor.Funcs{}, objects...)
	tests := map[string]struct {
		reader client.Client
		names  []string
		want   int
		err    string
	}{
		"all":                    {admin, nil, len(samples), ""},
		"two":                    {admin, []string{"old", "audit"}, 2, ""},
		"an unknown project":     {admin, []string{"none"}, 0, "get project none"},
		"a member names its own": {asProjectMember(admin), []string{"thesis-mueller"}, 1, ""},
		"a member lists all":     {asProjectMember(admin), nil, 1, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := listProjects(t.Context(), tc.reader, tc.names)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("err = %v, want it to contain %q", err, tc.err)
				}
				return
			}
			if err != nil || len(got) != tc.want {
				t.Errorf("%d projects and %v, want %d", len(got), err, tc.want)
			}
		})
	}
}

func TestProjectsCommandRefusesAnInvalidTime(t *testing.T) {
	_, err := runCommand(t, "projects", "--expiring-within", "2 months")
	if err == nil || !strings.Contains(err.Error(), `--expiring-within`) || !strings.Contains(err.Error(), "2 months") {
		t.Errorf("err = %v", err)
	}
}
