// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/period"
	"sluice.dev/api/scheme"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/clocks"
	"sluice.dev/cmd/sluice/show"
)

var update = flag.Bool("update", false, "write what is shown into testdata anew")

var now = time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC)

func at(length time.Duration) *metav1.Time {
	t := metav1.NewTime(now.Add(length))
	return &t
}

func clockOf(namespace, kind, name string, status v1alpha1.WorkloadClockStatus) v1alpha1.WorkloadClock {
	return v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: strings.ToLower(kind) + "-" + name},
		Spec:       v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{APIVersion: "v1", Kind: kind, Name: name}},
		Status:     status,
	}
}

// limit is one that nothing but its configuration made.
func limit(text string) *v1alpha1.ClockLimit {
	length := period.MustParseDuration(text)
	return &v1alpha1.ClockLimit{Configured: length, InForce: length}
}

// samples has a workload of each sort.
func samples() []v1alpha1.WorkloadClock {
	end := func(after time.Duration, reason v1alpha1.EndReason, limit time.Duration) *v1alpha1.ClockDeadline {
		return &v1alpha1.ClockDeadline{At: *at(after), Reason: reason, LimitSeconds: int64(limit / time.Second)}
	}
	return []v1alpha1.WorkloadClock{
		clockOf("campus-assistant", "Deployment", "chat", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadInference, State: v1alpha1.ClockStateRunning,
			AccumulatedSeconds: 86400 * 100, RunningSince: at(-30 * time.Minute),
		}),
		clockOf("protein-folding", "Job", "folding", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadTrain, State: v1alpha1.ClockStateRunning,
			AccumulatedSeconds: 3600, RunningSince: at(-24 * time.Hour),
			Limit: limit("10d"), Deadline: end(215*time.Hour, v1alpha1.EndMaxRuntime, 240*time.Hour),
		}),
		clockOf("lab", "Job", "late", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadTrain, State: v1alpha1.ClockStateRunning,
			RunningSince: at(-50 * time.Hour),
			Limit:        limit("48h"), Deadline: end(-2*time.Hour, v1alpha1.EndMaxRuntime, 48*time.Hour),
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionDryRun, Status: metav1.ConditionTrue}},
		}),
		clockOf("thesis", "Pod", "notebook", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadInteractive, State: v1alpha1.ClockStateRunning,
			RunningSince: at(-3 * time.Hour), IdleSince: at(-90*time.Minute - 12*time.Second),
			// In the hour that Europe/Berlin has twice.
			Deadline: end(2*time.Hour+30*time.Minute, v1alpha1.EndIdle, 0),
		}),
		clockOf("thesis", "StatefulSet", "paused", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadTrain, State: v1alpha1.ClockStatePaused,
			AccumulatedSeconds: 47 * 3600, PausedSince: at(-time.Minute),
			Limit: limit("48h"),
		}),
		clockOf("thesis", "Job", "blind", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadTrain, State: v1alpha1.ClockStateRunning,
			RunningSince: at(-time.Hour), IdleSince: at(-time.Hour),
			Limit: limit("48h"), Deadline: end(47*time.Hour, v1alpha1.EndMaxRuntime, 48*time.Hour),
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionIdleUnknown, Status: metav1.ConditionTrue}},
		}),
		clockOf("thesis", "Job", "over", v1alpha1.WorkloadClockStatus{
			WorkloadType: v1alpha1.WorkloadTrain, State: v1alpha1.ClockStateStopped, AccumulatedSeconds: 172800,
			Limit:   limit("48h"),
			Stopped: &v1alpha1.ClockStop{At: *at(-2 * time.Hour), Reason: v1alpha1.EndMaxRuntime, Until: at(-time.Hour)},
		}),
		clockOf("lab", "Job", "waits", v1alpha1.WorkloadClockStatus{State: v1alpha1.ClockStateWaiting}),
		// What nothing of the API keeps out, a terminal is still kept from.
		clockOf("lab", "Ev\x1b[2Jil", "a\nb", v1alpha1.WorkloadClockStatus{
			State: v1alpha1.ClockStateRunning, RunningSince: at(time.Hour), AccumulatedSeconds: 1<<63 - 1, CreatedBy: "\u202e\u009b31m",
		}),
	}
}

var projects = map[string]string{"thesis": "thesis-mueller", "protein-folding": "protein-folding", "campus-assistant": "campus-assistant"}

func TestWhatIsShown(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	rows := clocks.Rows(samples(), projects, now)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"all.txt":  func(b *bytes.Buffer) error { return clocks.Table(b, rows, true, berlin) },
		"one.txt":  func(b *bytes.Buffer) error { return clocks.Table(b, rows[:2], false, time.UTC) },
		"all.json": func(b *bytes.Buffer) error { return show.JSON(b, clocks.Document{Now: now, Clocks: rows}) },
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := write(&got); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("what is shown differs (-want +got; -update writes it anew)\n%s", diff)
			}
		})
	}
}

func builder(t *testing.T) *fake.ClientBuilder {
	t.Helper()
	kinds, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(kinds)
	for _, clock := range samples()[:7] {
		b.WithObjects(&clock)
	}
	for namespace, project := range projects {
		b.WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{v1alpha1.LabelProject: project}}})
	}
	return b.WithObjects(&v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis-mueller"}, Spec: v1alpha1.ProjectSpec{Namespace: "thesis"}})
}

// member is what a person may read who has rights in the namespace thesis only.
func member(c client.WithWatch) client.Client {
	forbidden := func(name string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, name, nil)
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, isProject := object.(*v1alpha1.Project); isProject {
				return c.Get(ctx, key, object, options...)
			}
			return forbidden(key.Name)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			asked := client.ListOptions{}
			if asked.ApplyOptions(options); asked.Namespace != "thesis" {
				return forbidden("")
			}
			return c.List(ctx, list, options...)
		},
	})
}

func TestList(t *testing.T) {
	admin := builder(t).Build()
	tests := map[string]struct {
		reader             client.Client
		namespace, project string
		clocks             int
		ofThesis           string
		err                string
	}{
		"everywhere":                 {admin, "", "", 7, "thesis-mueller", ""},
		"a namespace":                {admin, "thesis", "", 4, "thesis-mueller", ""},
		"a project":                  {admin, "", "thesis-mueller", 4, "thesis-mueller", ""},
		"an empty namespace":         {admin, "none", "", 0, "", ""},
		"a project that is none":     {admin, "", "none", 0, "", `reading project none`},
		"a member's namespace":       {member(admin), "thesis", "", 4, "", ""},
		"a member's project":         {member(admin), "", "thesis-mueller", 4, "thesis-mueller", ""},
		"a member asks for too much": {member(admin), "", "", 0, "", "name a namespace with -n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			found, err := clocks.List(t.Context(), tc.reader, tc.namespace, tc.project)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("err = %v, want it to say %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(found.Clocks) != tc.clocks || found.Projects["thesis"] != tc.ofThesis {
				t.Errorf("%d clocks and project %q, want %d and %q", len(found.Clocks), found.Projects["thesis"], tc.clocks, tc.ofThesis)
			}
		})
	}
}
