// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

func parseTime(t *testing.T, text string) time.Time {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	when, err := time.ParseInLocation("2006-01-02 15:04", text, zone)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func TestReportingWeekOf(t *testing.T) {
	tests := map[string]struct {
		digest, now         string
		from, to, due, next string
	}{
		"Monday before eight": {"0 8 * * *", "2026-03-09 07:59", "2026-02-23 00:00", "2026-03-02 00:00", "2026-03-02 08:00", "2026-03-09 08:00"},
		"Monday at eight":     {"0 8 * * *", "2026-03-09 08:00", "2026-03-02 00:00", "2026-03-09 00:00", "2026-03-09 08:00", "2026-03-16 08:00"},
		"Sunday":              {"0 8 * * *", "2026-03-15 23:00", "2026-03-02 00:00", "2026-03-09 00:00", "2026-03-09 08:00", "2026-03-16 08:00"},
		"no digest":           {"", "2026-03-10 00:00", "2026-03-02 00:00", "2026-03-09 00:00", "2026-03-09 08:00", "2026-03-16 08:00"},
		"digest on Wednesday": {"30 9 * * 3", "2026-03-10 00:00", "2026-02-23 00:00", "2026-03-02 00:00", "2026-03-04 09:30", "2026-03-11 09:30"},
		"summer time begins":  {"0 8 * * *", "2026-03-30 08:00", "2026-03-23 00:00", "2026-03-30 00:00", "2026-03-30 08:00", "2026-04-06 08:00"},
		"summer time ends":    {"0 8 * * *", "2026-10-26 12:00", "2026-10-19 00:00", "2026-10-26 00:00", "2026-10-26 08:00", "2026-11-02 08:00"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w, err := reportingWeekOf(v1alpha1.NoticeTerms{Digest: tc.digest, TimeZone: "Europe/Berlin"}, parseTime(t, tc.now))
			if err != nil {
				t.Fatal(err)
			}
			zone := parseTime(t, tc.now).Location()
			var got []string
			for _, instant := range []time.Time{w.from, w.to, w.dueAt, w.nextDueAt} {
				got = append(got, instant.In(zone).Format("2006-01-02 15:04"))
			}
			if diff := cmp.Diff([]string{tc.from, tc.to, tc.due, tc.next}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Each week is recorded once for each contact; a new department has none before its first week.
func TestWeeklySummaryRecordedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(parseTime(t, "2026-03-11 10:00"))) // the bubble starts in 2000
		contact := v1alpha1.Contact{Name: "Office", Email: "office@example.org"}
		stop := func(name, when string, reason v1alpha1.EndReason) *v1alpha1.WorkloadClock {
			return &v1alpha1.WorkloadClock{
				ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name},
				Status:     v1alpha1.WorkloadClockStatus{Stopped: &v1alpha1.ClockStop{At: metav1.NewTime(parseTime(t, when)), Reason: reason}},
			}
		}
		c := fake.NewClientBuilder().WithScheme(scheme).
			WithIndex(&v1alpha1.Project{}, inventory.ProjectsByDepartment, func(o client.Object) []string {
				return []string{o.(*v1alpha1.Project).Spec.Department}
			}).
			WithObjects(
				&v1alpha1.Department{
					ObjectMeta: metav1.ObjectMeta{Name: "students", UID: "s", CreationTimestamp: metav1.NewTime(time.Now())},
					Spec: v1alpha1.DepartmentSpec{
						Contacts: []v1alpha1.Contact{contact}, Notices: v1alpha1.NoticeTerms{Digest: "0 8 * * *", TimeZone: "Europe/Berlin"},
					},
				},
				&v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "lab"}, Spec: v1alpha1.ProjectSpec{Department: "students"}},
				stop("before", "2026-03-08 12:00", v1alpha1.EndIdle), stop("idle", "2026-03-12 12:00", v1alpha1.EndIdle),
				stop("long", "2026-03-15 23:59", v1alpha1.EndMaxRuntime), stop("after", "2026-03-16 00:00", v1alpha1.EndMaxRuntime),
				&v1alpha1.UsageRecord{ObjectMeta: metav1.ObjectMeta{Name: "lab-2026-03"}, Status: v1alpha1.UsageRecordStatus{GPUMilliHours: 1_234_540}},
				&v1alpha1.UsageRecord{ObjectMeta: metav1.ObjectMeta{Name: "lab-2026-02"}, Status: v1alpha1.UsageRecordStatus{GPUMilliHours: 987_000}},
				&v1alpha1.UsageRecord{
					ObjectMeta: metav1.ObjectMeta{Name: "other-2026-03"}, Status: v1alpha1.UsageRecordStatus{GPUMilliHours: 5_000_000},
				},
				&v1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "requested"}},
			).
			Build()
		r := &WeeklySummaryReconciler{Client: c, Notices: Recorder{Client: c, Live: c}, Clock: policytime.System()}
		recorded := func(until string) []v1alpha1.Notice {
			for time.Now().Before(parseTime(t, until)) {
				result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "students"}})
				if err != nil || result.RequeueAfter <= 0 {
					t.Fatal(result, err)
				}
				time.Sleep(result.RequeueAfter)
			}
			var all v1alpha1.NoticeList
			if err := c.List(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			return all.Items
		}
		if all := recorded("2026-03-16 07:59"); len(all) != 0 {
			t.Fatalf("before its first week was over: %v", all)
		}
		all := recorded("2026-03-16 09:30")
		if len(all) != 1 {
			t.Fatalf("%d after the first week", len(all))
		}
		want := map[string]string{
			"department": "students", "from": "2026-03-08T23:00:00Z", "to": "2026-03-15T23:00:00Z", "stopped": "2", "stoppedIdle": "1",
			"pendingExtensions": "1",
			"projects":          `[{"project":"lab","gpuHours":"1234.5","stopped":2}]`,
			"month":             "2026-03", "monthUntil": "2026-03-16T07:00:00Z", "gpuHours": "1234.5", "gpuHoursBefore": "987.0",
		}
		if diff := cmp.Diff(want, all[0].Spec.Inputs); diff != "" {
			t.Error(diff)
		}
		if !all[0].Spec.DueAt.Time.Equal(parseTime(t, "2026-03-16 08:00")) {
			t.Errorf("due at %v", all[0].Spec.DueAt)
		}
		if all := recorded("2026-04-20 09:30"); len(all) != 6 {
			t.Errorf("%d after six weeks, in which summer time began", len(all))
		}
	})
}

// The summary names the steps of projects that come next, with whom to ask about them.
// steppedClock is a policy time whose timeline a test changes.
type steppedClock struct {
	policytime.Clock
	timeline atomic.Pointer[policytime.Timeline]
}

func (c *steppedClock) Timeline() policytime.Timeline { return *c.timeline.Load() }

// requestQueue holds the requests of a source.
type requestQueue struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	added chan ctrl.Request
}

func (q requestQueue) Add(r ctrl.Request) { q.added <- r }

// A step of policy time to a Monday brings the summary of the week, without an hour's wait.
func TestStepOfPolicyTimeReachesTheWeeklySummary(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		clock := &steppedClock{}
		clock.timeline.Store(&policytime.Timeline{})
		r := &WeeklySummaryReconciler{Clock: clock, Client: fake.NewClientBuilder().WithScheme(scheme).
			WithObjects(&v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}}).Build()}
		queue := requestQueue{added: make(chan ctrl.Request, 1)}
		if err := r.timelineSource().Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		clock.timeline.Store(&policytime.Timeline{Segments: make([]policytime.Segment, 1)})
		if got := <-queue.added; got.Name != "students" {
			t.Errorf("request %s, want students", got)
		}
	})
}

func TestProjectStepInputs(t *testing.T) {
	now := parseTime(t, "2026-11-23 08:00")
	project := func(name, at string, phase v1alpha1.ProjectPhase, owners ...v1alpha1.EmailAddress) v1alpha1.Project {
		p := v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, owner := range owners {
			p.Spec.Owners = append(p.Spec.Owners, v1alpha1.Owner{Contact: v1alpha1.Contact{Email: owner}})
		}
		if at != "" {
			p.Status.Next = &v1alpha1.ProjectStep{Phase: phase, At: metav1.NewTime(parseTime(t, at))}
		}
		return p
	}
	later := project("later", "2027-03-01 00:00", v1alpha1.ProjectExpired, "a@example.org")
	for name, tc := range map[string]struct {
		projects []v1alpha1.Project
		want     map[string]string
	}{
		"no project expires": {[]v1alpha1.Project{project("forever", "", "")}, nil},
		"none soon":          {[]v1alpha1.Project{later}, map[string]string{"stepCount": "0", "steps": "null"}},
		"the earliest first, and one that is late": {
			[]v1alpha1.Project{
				later, project("forever", "", ""),
				project("second", "2027-01-07 00:00", v1alpha1.ProjectPendingDeletion, "b@example.org", "c@example.org"),
				project("first", "2026-11-22 00:00", v1alpha1.ProjectExpired, "a@example.org"),
			},
			map[string]string{"stepCount": "2", "steps": `[{"project":"first","phase":"Expired","at":"2026-11-21T23:00:00Z","owners":"a@example.org"},` +
				`{"project":"second","phase":"PendingDeletion","at":"2027-01-06T23:00:00Z","owners":"b@example.org, c@example.org"}]`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, projectStepInputs(tc.projects, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
	var many []v1alpha1.Project
	for day := range 28 {
		many = append(many, project("p", fmt.Sprintf("2026-12-%02d 00:00", day+1), v1alpha1.ProjectExpired, "a@example.org"))
	}
	got := projectStepInputs(many, now)
	if got["stepCount"] != "28" || strings.Count(got["steps"], `"project"`) != 10 {
		t.Errorf("of 28 steps: %v", got)
	}
}

// The administrators of a department learn each week which deletions await them, and which were approved.
func TestAwaitingInputs(t *testing.T) {
	project := func(name, since string, change func(*v1alpha1.ProjectStatus)) v1alpha1.Project {
		at := metav1.NewTime(parseTime(t, since))
		p := v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Status = v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectPendingDeletion, PhaseSince: &at, ClosedAt: &at}
		if change != nil {
			change(&p.Status)
		}
		return p
	}
	approved := project("approved", "2026-11-20 00:00", func(s *v1alpha1.ProjectStatus) {
		s.Expiry = &v1alpha1.ProjectExpiry{Deletion: &v1alpha1.ProjectDeletionApproval{ApprovedBy: "dean@example.org"}}
		s.Next = &v1alpha1.ProjectStep{Phase: v1alpha1.ProjectDeleting, At: metav1.NewTime(parseTime(t, "2026-11-28 00:00"))}
	})
	projects := []v1alpha1.Project{
		project("active", "2026-01-01 00:00", func(s *v1alpha1.ProjectStatus) { s.Phase = v1alpha1.ProjectActive }), approved,
		project("suspended", "2026-11-10 00:00", nil),
		project("unconfirmed", "2026-11-01 00:00", func(s *v1alpha1.ProjectStatus) { s.ClosedAt = nil }),
	}
	want := map[string]string{"awaitingCount": "2", "awaiting": `[{"project":"unconfirmed","phase":"Deleting","at":"2026-10-31T23:00:00Z","owners":""},` +
		`{"project":"suspended","phase":"Deleting","at":"2026-11-09T23:00:00Z","closed":true,"owners":""}]`}
	if diff := cmp.Diff(want, awaitingInputs(projects)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	want = map[string]string{"stepCount": "1", "steps": `[{"project":"approved","phase":"Deleting","at":"2026-11-27T23:00:00Z","closed":true,` +
		`"approvedBy":"dean@example.org","owners":""}]`}
	if diff := cmp.Diff(want, projectStepInputs(projects, parseTime(t, "2026-11-23 08:00"))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := awaitingInputs(projects[:2]); got != nil {
		t.Errorf("without such projects: %v", got)
	}
}

// Each summary covers the month in which its week began, and each month has one that covers it wholly.
func TestReportingMonthOf(t *testing.T) {
	for name, tc := range map[string]struct{ now, want, before, until string }{
		"within a month":                   {"2026-03-16 08:00", "2026-03", "2026-02", "2026-03-16 08:00"},
		"the week that ends a month":       {"2026-03-02 08:00", "2026-02", "2026-01", ""},
		"the week over two months":         {"2026-05-04 08:00", "2026-04", "2026-03", ""},
		"the week after that":              {"2026-05-11 08:00", "2026-05", "2026-04", "2026-05-11 08:00"},
		"the turn of the year":             {"2027-01-04 08:00", "2026-12", "2026-11", ""},
		"before the last hour is recorded": {"2026-06-01 00:30", "2026-05", "2026-04", "2026-06-01 00:30"},
	} {
		t.Run(name, func(t *testing.T) {
			now := parseTime(t, tc.now)
			w, err := reportingWeekOf(v1alpha1.NoticeTerms{Digest: "30 0,8 * * 1", TimeZone: "Europe/Berlin"}, now)
			if tc.now[11:] == "08:00" {
				w, err = reportingWeekOf(v1alpha1.NoticeTerms{TimeZone: "Europe/Berlin"}, now)
			}
			if err != nil {
				t.Fatal(err)
			}
			m := reportingMonthOf(w, now, now.Location())
			until := ""
			if !m.countedUntil.IsZero() {
				until = m.countedUntil.Format("2006-01-02 15:04")
			}
			if diff := cmp.Diff([]string{tc.want, tc.before, tc.until}, []string{m.name, m.previous, until}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestFormatHours(t *testing.T) {
	for milli, want := range map[int64]string{0: "0.0", 49: "0.0", 51: "0.1", 1000: "1.0", 1_234_540: "1234.5", 9_999_999_960: "10000000.0"} {
		if got := formatHours(milli); got != want {
			t.Errorf("%d: %s, want %s", milli, got, want)
		}
	}
}
