// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

var eventsNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func metaTimeIn(length time.Duration) metav1.Time { return metav1.NewTime(eventsNow.Add(length)) }

// runningClock returns the clock of the Job x in thesis, which reaches its limit of 48
// hours in 30.
func runningClock(changes ...func(*v1alpha1.WorkloadClock)) v1alpha1.WorkloadClock {
	clock := v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "thesis", Name: "job-x-1"},
		Spec:       v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: "x"}},
		Status: v1alpha1.WorkloadClockStatus{
			State: v1alpha1.ClockStateRunning, WorkloadType: v1alpha1.WorkloadTrain,
			Deadline: &v1alpha1.ClockDeadline{At: metaTimeIn(30 * time.Hour), Reason: v1alpha1.EndMaxRuntime, LimitSeconds: 172800},
		},
	}
	for _, change := range changes {
		change(&clock)
	}
	return clock
}

func withRecordedWarning(lead string, limit int64) func(*v1alpha1.WorkloadClock) {
	return func(c *v1alpha1.WorkloadClock) {
		c.Status.Leads = append(c.Status.Leads, v1alpha1.ClockLead{
			Lead: period.MustParseDuration(lead), Reason: v1alpha1.EndMaxRuntime, LimitSeconds: limit, At: metaTimeIn(-time.Hour),
		})
	}
}

func withDeadline(after time.Duration, reason v1alpha1.EndReason) func(*v1alpha1.WorkloadClock) {
	return func(c *v1alpha1.WorkloadClock) {
		c.Status.Deadline = &v1alpha1.ClockDeadline{At: metaTimeIn(after), Reason: reason}
	}
}

func withClockState(s v1alpha1.ClockState) func(*v1alpha1.WorkloadClock) {
	return func(c *v1alpha1.WorkloadClock) { c.Status.State = s }
}

// sampleEventSources returns a project y in the namespace thesis, whose department has
// the usual leads and an idle timeout of two hours.
func sampleEventSources() eventSources {
	two := period.MustParseDuration("2h")
	return eventSources{
		projects: []v1alpha1.Project{{
			ObjectMeta: metav1.ObjectMeta{Name: "y"},
			Spec:       v1alpha1.ProjectSpec{Department: "students", Namespace: "thesis"},
		}},
		departments: []v1alpha1.Department{{
			ObjectMeta: metav1.ObjectMeta{Name: "students"},
			Spec: v1alpha1.DepartmentSpec{
				Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{v1alpha1.AnyWorkload: {IdleTimeout: &two}},
				Notices: v1alpha1.NoticeTerms{WorkloadEnd: []period.Duration{
					period.MustParseDuration("24h"), period.MustParseDuration("4h"), period.MustParseDuration("30m"),
				}},
			},
		}},
	}
}

func TestNextEvents(t *testing.T) {
	day, half := "24h", "30m"
	tests := map[string]struct {
		clocks  []v1alpha1.WorkloadClock
		notices []v1alpha1.Notice
		step    *v1alpha1.ProjectStep
		unknown bool // the project
		at      time.Duration
		want    []string
	}{
		"nothing": {},
		"the first warning": {
			clocks: []v1alpha1.WorkloadClock{runningClock()},
			at:     6 * time.Hour, want: []string{"warning 24h before the end of Job x in project y"},
		},
		"a warning was given": {
			clocks: []v1alpha1.WorkloadClock{runningClock(withRecordedWarning(day, 172800))},
			at:     26 * time.Hour, want: []string{"warning 4h before the end of Job x in project y"},
		},
		"a warning with the same lead": {
			clocks: []v1alpha1.WorkloadClock{runningClock(withRecordedWarning("1d", 172800))},
			at:     26 * time.Hour, want: []string{"warning 4h before the end of Job x in project y"},
		},
		"a warning for another limit": {
			clocks: []v1alpha1.WorkloadClock{runningClock(withRecordedWarning(day, 86400))},
			at:     6 * time.Hour, want: []string{"warning 24h before the end of Job x in project y"},
		},
		"the end itself": {
			clocks: []v1alpha1.WorkloadClock{
				runningClock(withRecordedWarning(day, 172800), withRecordedWarning("4h", 172800), withRecordedWarning(half, 172800)),
			},
			at: 30 * time.Hour, want: []string{"the end of Job x in project y (MaxRuntime)"},
		},
		"paused and stopped": {
			clocks: []v1alpha1.WorkloadClock{
				runningClock(withClockState(v1alpha1.ClockStatePaused)),
				runningClock(withClockState(v1alpha1.ClockStateStopped)),
			},
		},
		"a past end": {clocks: []v1alpha1.WorkloadClock{runningClock(withDeadline(0, v1alpha1.EndMaxRuntime))}},
		"half of an idle timeout": {
			clocks: []v1alpha1.WorkloadClock{runningClock(withDeadline(90*time.Minute, v1alpha1.EndIdle))},
			at:     30 * time.Minute, want: []string{"warning 1h before the end of Job x in project y"},
		},
		"an end with its own notice": {
			clocks: []v1alpha1.WorkloadClock{runningClock(withDeadline(90*time.Minute, v1alpha1.EndProjectSuspended))},
			at:     90 * time.Minute, want: []string{"the end of Job x in project y (ProjectSuspended)"},
		},
		"an unknown project": {
			clocks: []v1alpha1.WorkloadClock{runningClock()}, unknown: true,
			at: 30 * time.Hour, want: []string{"the end of Job x in namespace thesis (MaxRuntime)"},
		},
		"a notice": {
			notices: []v1alpha1.Notice{noticeDueIn(time.Hour, "", ""), noticeDueIn(2*time.Hour, v1alpha1.NoticePending, "")},
			at:      time.Hour, want: []string{"notice ProjectExpiring to anna@example.org about Project y"},
		},
		"completed notices": {
			notices: []v1alpha1.Notice{
				noticeDueIn(time.Hour, v1alpha1.NoticeSent, ""), noticeDueIn(time.Hour, v1alpha1.NoticeSuperseded, ""),
				noticeDueIn(time.Hour, v1alpha1.NoticeFailed, ""), noticeDueIn(time.Hour, "", "digest-of-the-day"),
			},
		},
		"a phase of a project, and an end at the same time": {
			clocks: []v1alpha1.WorkloadClock{runningClock(withDeadline(48*time.Hour, v1alpha1.EndProjectSuspended))},
			step:   &v1alpha1.ProjectStep{Phase: v1alpha1.ProjectSuspended, At: metaTimeIn(48 * time.Hour)},
			at:     48 * time.Hour, want: []string{"project y becomes Suspended", "the end of Job x in project y (ProjectSuspended)"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sources := sampleEventSources()
			sources.projects[0].Status.Next = tc.step
			if tc.unknown {
				sources = eventSources{}
			}
			sources.clocks, sources.notices = tc.clocks, tc.notices
			var got []string
			for _, event := range nextEvents(eventsNow, sources) {
				got = append(got, event.Description)
				if want := eventsNow.Add(tc.at); !event.At.Equal(want) {
					t.Errorf("%s at %v, want %v", event.Description, event.At, want)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the events differ (-want +got)\n%s", diff)
			}
		})
	}
}

// Each step of policy time reaches the next warning of a project, at the digest that carries it, and then its expiry after
// the holidays.
func TestNextEventsOfAProject(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	validity := period.MustParsePeriod("P6M")
	sources := sampleEventSources()
	spec := &sources.departments[0].Spec
	spec.Projects = v1alpha1.ProjectTerms{Validity: &validity, AtExpiry: v1alpha1.ExpiryExpire}
	spec.Holidays = []v1alpha1.Holiday{{From: period.MustParseDate("2026-12-19"), To: period.MustParseDate("2027-01-06")}}
	spec.Notices = v1alpha1.NoticeTerms{TimeZone: "Europe/Berlin", Digest: "0 8 * * *", ProjectExpiry: []period.Duration{
		period.MustParseDuration("30d"), period.MustParseDuration("7d"), period.MustParseDuration("1d"),
	}}
	end := metav1.NewTime(time.Date(2027, 1, 7, 0, 0, 0, 0, berlin))
	sources.projects[0].Status = v1alpha1.ProjectStatus{
		Phase: v1alpha1.ProjectActive, Periods: 1, ExpiresAt: &end, Next: &v1alpha1.ProjectStep{Phase: v1alpha1.ProjectExpired, At: end},
	}
	var got []string
	for now := time.Date(2026, 11, 1, 0, 0, 0, 0, berlin); ; {
		events := nextEvents(now, sources)
		if len(events) == 0 {
			break
		}
		for _, event := range events {
			got = append(got, event.At.In(berlin).Format("2006-01-02 15:04 ")+event.Description)
		}
		now = events[0].At
	}
	want := []string{
		"2026-11-18 08:00 warning 30d before project y becomes Expired",
		"2026-12-11 08:00 warning 7d before project y becomes Expired",
		"2026-12-17 08:00 warning 24h before project y becomes Expired",
		"2027-01-07 00:00 project y becomes Expired",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the events differ (-want +got)\n%s", diff)
	}
}

func noticeDueIn(after time.Duration, phase v1alpha1.NoticePhase, digest string) v1alpha1.Notice {
	n := v1alpha1.Notice{
		ObjectMeta: metav1.ObjectMeta{Name: "notice-1"},
		Spec: v1alpha1.NoticeSpec{
			Kind: v1alpha1.NoticeProjectExpiring, DueAt: metaTimeIn(after), Digest: digest,
			Subject: &v1alpha1.ObjectReference{APIVersion: "sluice.dev/v1alpha1", Kind: "Project", Name: "y"},
		},
		Status: v1alpha1.NoticeStatus{Phase: phase},
	}
	n.Spec.Recipient.Email = "anna@example.org"
	return n
}

func TestListEventSources(t *testing.T) {
	clock, due := runningClock(), noticeDueIn(time.Hour, "", "")
	sources := sampleEventSources()
	c := newFakeClient(t, &clock, &due, &sources.projects[0], &sources.departments[0])
	got, err := listEventSources(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{1, 1, 1, 1}, []int{len(got.clocks), len(got.notices), len(got.projects), len(got.departments)}); diff != "" {
		t.Error(diff)
	}
	refused := interceptor.NewClient(c, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("not for you")
		},
	})
	if _, err := listEventSources(t.Context(), refused); err == nil || !strings.Contains(err.Error(), "not for you") {
		t.Errorf("err = %v, want the error of the API server", err)
	}
}
