// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

var clocksNow = time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC)

func clockTime(length time.Duration) *metav1.Time {
	t := metav1.NewTime(clocksNow.Add(length))
	return &t
}

func newClock(namespace, kind, name string, status v1alpha1.WorkloadClockStatus) v1alpha1.WorkloadClock {
	return v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: strings.ToLower(kind) + "-" + name},
		Spec:       v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{APIVersion: "v1", Kind: kind, Name: name}},
		Status:     status,
	}
}

// runtimeLimit returns a limit that is in force as configured.
func runtimeLimit(text string) *v1alpha1.ClockLimit {
	length := period.MustParseDuration(text)
	return &v1alpha1.ClockLimit{Configured: length, InForce: length}
}

// sampleClocks returns a workload in each state.
func sampleClocks() []v1alpha1.WorkloadClock {
	end := func(after time.Duration, reason v1alpha1.EndReason, limit time.Duration) *v1alpha1.ClockDeadline {
		return &v1alpha1.ClockDeadline{At: *clockTime(after), Reason: reason, LimitSeconds: int64(limit / time.Second)}
	}
	return []v1alpha1.WorkloadClock{
		newClock("campus-assistant", "Deployment", "chat", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadInference, State: v1alpha1.ClockStateRunning,
			AccumulatedSeconds: 86400 * 100, RunningSince: clockTime(-30 * time.Minute),
		}),
		newClock("protein-folding", "Job", "folding", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadTrain, State: v1alpha1.ClockStateRunning,
			AccumulatedSeconds: 3600, RunningSince: clockTime(-24 * time.Hour),
			Limit: runtimeLimit("10d"), Deadline: end(215*time.Hour, v1alpha1.EndMaxRuntime, 240*time.Hour),
		}),
		newClock("lab", "Job", "late", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadTrain, State: v1alpha1.ClockStateRunning,
			RunningSince: clockTime(-50 * time.Hour),
			Limit:        runtimeLimit("48h"), Deadline: end(-2*time.Hour, v1alpha1.EndMaxRuntime, 48*time.Hour),
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionDryRun, Status: metav1.ConditionTrue}},
		}),
		newClock("thesis", "Pod", "notebook", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadInteractive, State: v1alpha1.ClockStateRunning,
			RunningSince: clockTime(-3 * time.Hour), IdleSince: clockTime(-90*time.Minute - 12*time.Second),
			// Europe/Berlin has this hour twice.
			Deadline: end(2*time.Hour+30*time.Minute, v1alpha1.EndIdle, 0),
		}),
		newClock("thesis", "StatefulSet", "paused", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadTrain, State: v1alpha1.ClockStatePaused,
			AccumulatedSeconds: 47 * 3600, PausedSince: clockTime(-time.Minute),
			Limit: runtimeLimit("48h"),
		}),
		newClock("thesis", "Job", "blind", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadTrain, State: v1alpha1.ClockStateRunning,
			RunningSince: clockTime(-time.Hour), IdleSince: clockTime(-time.Hour),
			Limit: runtimeLimit("48h"), Deadline: end(47*time.Hour, v1alpha1.EndMaxRuntime, 48*time.Hour),
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionIdleUnknown, Status: metav1.ConditionTrue}},
		}),
		newClock("thesis", "Job", "over", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadTrain, State: v1alpha1.ClockStateStopped, AccumulatedSeconds: 172800,
			Limit:   runtimeLimit("48h"),
			Stopped: &v1alpha1.ClockStop{At: *clockTime(-2 * time.Hour), Reason: v1alpha1.EndMaxRuntime, Until: clockTime(-time.Hour)},
		}),
		newClock("lab", "Job", "done", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadTrain, State: v1alpha1.ClockStateFinished, AccumulatedSeconds: 7200, Limit: runtimeLimit("48h"),
		}),
		newClock("lab", "Pod", "gone", v1alpha1.WorkloadClockStatus{State: v1alpha1.ClockStateDeleted}),
		newClock("lab", "Job", "waits", v1alpha1.WorkloadClockStatus{State: v1alpha1.ClockStatePending}),
		// The API accepts such names. A terminal must not receive them.
		newClock("lab", "Ev\x1b[2Jil", "a\nb", v1alpha1.WorkloadClockStatus{
			State: v1alpha1.ClockStateRunning, RunningSince: clockTime(time.Hour), AccumulatedSeconds: 1<<63 - 1, CreatedBy: "\u202e\u009b31m",
		}),
	}
}

var sampleProjects = map[string]string{
	"thesis":           "thesis-mueller",
	"protein-folding":  "protein-folding",
	"campus-assistant": "campus-assistant",
}

func TestClockOutput(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	rows := newClockRows(sampleClocks(), sampleProjects, clocksNow)
	golden.Assert(t, tableText(t, clockTable(rows, true, berlin)), "clocks/all.txt")
	golden.Assert(t, tableText(t, clockTable(rows[:2], false, time.UTC)), "clocks/one.txt")
	golden.Assert(t, jsonText(t, clockDocument{Now: clocksNow, Clocks: rows}), "clocks/all.json")
	var wide bytes.Buffer
	if err := clockTable(rows, true, berlin).Write(&wide, true); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, wide.String(), "clocks/wide.txt")
}

func newClocksClient(t *testing.T) client.WithWatch {
	t.Helper()
	var objects []client.Object
	for _, clock := range sampleClocks()[:7] {
		objects = append(objects, &clock)
	}
	for namespace, project := range sampleProjects {
		labels := map[string]string{v1alpha1.LabelProject: project}
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}})
	}
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis-mueller"}, Spec: v1alpha1.ProjectSpec{Namespace: "thesis"}}
	return newFakeClient(t, interceptor.Funcs{}, append(objects, project)...)
}

// asProjectMember returns a client that may only read the namespace thesis.
func asProjectMember(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, isProject := object.(*v1alpha1.Project); isProject {
				return c.Get(ctx, key, object, options...)
			}
			return forbiddenError()
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			selected := client.ListOptions{}
			if selected.ApplyOptions(options); selected.Namespace != "thesis" {
				return forbiddenError()
			}
			return c.List(ctx, list, options...)
		},
		Create: answerSelfReviews("anna", resourceRule("projects", []string{"get"}, "thesis-mueller", "deleted"), resourceRule("nodepools", []string{"get"}, "dgx")),
	})
}

// answerSelfReviews returns what answers the reviews of a user's own name and rights.
func answerSelfReviews(user string, rules ...authorizationv1.ResourceRule) func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
	return func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
		switch review := object.(type) {
		case *authenticationv1.SelfSubjectReview:
			review.Status.UserInfo = authenticationv1.UserInfo{Username: user, Groups: []string{"system:authenticated"}}
		case *authorizationv1.SelfSubjectRulesReview:
			review.Status.ResourceRules = rules
		default:
			return c.Create(ctx, object, options...)
		}
		return nil
	}
}

func TestListClocks(t *testing.T) {
	admin := newClocksClient(t)
	tests := map[string]struct {
		reader             client.Client
		namespace, project string
		clocks             int
		ofThesis           string
		err                string
	}{
		"everywhere":                {admin, "", "", 7, "thesis-mueller", ""},
		"a namespace":               {admin, "thesis", "", 4, "thesis-mueller", ""},
		"a project":                 {admin, "", "thesis-mueller", 4, "thesis-mueller", ""},
		"an empty namespace":        {admin, "none", "", 0, "", ""},
		"an unknown project":        {admin, "", "none", 0, "", `get project none`},
		"a member's namespace":      {asProjectMember(admin), "thesis", "", 4, "", ""},
		"a member's project":        {asProjectMember(admin), "", "thesis-mueller", 4, "thesis-mueller", ""},
		"a member lists everything": {asProjectMember(admin), "", "", 0, "", "name a namespace with -n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			list, err := listClocks(t.Context(), tc.reader, tc.namespace, tc.project)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("err = %v, want it to contain %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(list.clocks) != tc.clocks || list.projects["thesis"] != tc.ofThesis {
				t.Errorf("%d clocks and project %q, want %d and %q", len(list.clocks), list.projects["thesis"], tc.clocks, tc.ofThesis)
			}
		})
	}
}
