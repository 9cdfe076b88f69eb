// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Workloads end on time: none before its time and none unannounced, as the
// sample university's departments have it. Its parts run one after the other in one
// cluster, since all live in one policy time.
func TestClocks(t *testing.T) {
	c := newTimed(t)
	t.Run("end workloads on time", c.endOnTime)
	t.Run("go on over restarts", c.goOn)
	t.Run("survive a week without lifecycle", c.surviveAnAbsence)
	t.Run("end what is idle", c.endIdle)
	t.Run("spare what is to be spared", c.spare)
	t.Run("are braked", c.brake) // changes how lifecycle is configured
}

// leads are the university's.
var leads = []time.Duration{24 * time.Hour, 4 * time.Hour, 30 * time.Minute}

// endOnTime shows that students' work ends after two days and research after ten,
// each warned a day, four hours and half an hour before, and that of everybody
// never.
func (c *timed) endOnTime(t *testing.T) {
	const ns, limit = "on-time", 48 * time.Hour
	c.governed(t, "h2-students", ns, quota("dgx-mig", "500m", "1"))
	students := []workload{
		aPod(ns, "notebook", slice, ofType(v1alpha1.WorkloadInteractive)),
		aJob(ns, "training", slice), aDeployment(ns, "model", slice), aStatefulSet(ns, "ring", slice),
	}
	research, forever := aJob("protein-folding", "folding", v1alpha1.ResourceNVIDIAGPU), aDeployment("campus-assistant", "assistant", v1alpha1.ResourceNVIDIAGPU)
	c.begin(t, append(students, research, forever)...)
	c.shownRunning(t, ns)

	c.warnedStepByStep(t, students, limit)
	var want []string
	for _, w := range students {
		want = append(want, noticesOf(w, c.status(t, w).BeganAt.Time, limit)...)
		c.awaitMarked(t, w)
		said := c.kubectl(t, "describe", w.kind, w.GetName(), "-n", ns)
		if n := strings.Count(said, "EndsSoon"); n == 0 || !strings.Contains(said, "when it has run for 48h;") {
			t.Errorf("%d events on it announce the end of %s:\n%s", n, w.GetName(), said)
		}
	}
	c.wasTold(t, ns, want...)

	first, last := c.ends(t, students)
	c.stepTo(t, first.Add(-5*time.Minute))
	c.running(t, "five minutes before the end", append(students, research, forever)...)
	if shown := c.run(t, "clocks", "-n", ns); !strings.Contains(shown, "47h5") {
		t.Errorf("sluice clocks shows\n%s", shown)
	}
	if kinds := c.next(t); len(kinds) == 0 || kinds[0] != "WorkloadEnd" {
		t.Errorf("what comes next is %v, want an end", kinds)
	}
	c.stepTo(t, last)
	c.ended(t, v1alpha1.EndMaxRuntime, limit, students...)
	c.shownStopped(t, ns, students)
	c.await(t, func() error {
		if left := c.podsOf(t, ns); len(left) > 0 {
			return errNotYet("no pod is left", len(left))
		}
		return nil
	})
	c.running(t, "after two days", research, forever)

	c.warnedStepByStep(t, []workload{research}, 240*time.Hour)
	c.wasTold(t, "protein-folding", noticesOf(research, c.status(t, research).BeganAt.Time, 240*time.Hour)...)
	c.stepTo(t, c.end(t, research).Add(-5*time.Minute))
	c.running(t, "five minutes before the end", research)
	c.stepTo(t, c.end(t, research))
	c.ended(t, v1alpha1.EndMaxRuntime, 240*time.Hour, research)

	c.step(t, 30*24*time.Hour)
	c.running(t, "after forty days", forever)
	if s := c.status(t, forever); s.Limit != nil || s.Deadline != nil || s.Local.Ends != "never" {
		t.Errorf("what nothing limits ends %s: %+v", s.Local.Ends, s)
	}
	c.wasTold(t, "campus-assistant")
}

// warnedStepByStep steps to each warning of the workloads, until there are none.
func (c *timed) warnedStepByStep(t *testing.T, workloads []workload, limit time.Duration) {
	t.Helper()
	for left := true; left; {
		kinds, at := c.eventsAt(t, "--dry-run")
		// A warning that has come due by itself meanwhile is no next one any more.
		if slices.Contains(kinds, "WorkloadEnd") {
			break
		}
		// One that is about to is waited for: what began a little later is warned a
		// little later.
		if at.Sub(c.time.Now()) < 5*time.Second {
			c.await(t, func() error {
				if now := c.time.Now(); now.Before(at) {
					return errNotYet("the next warning is due", now)
				}
				return nil
			})
		} else {
			kinds = c.next(t)
		}
		for _, kind := range kinds {
			if kind != "WorkloadWarning" {
				t.Fatalf("%s comes next, want only warnings", kind)
			}
		}
		left = false
		for _, w := range workloads {
			s := c.awaitClock(t, w, "every warning that is due was given", func(s *v1alpha1.WorkloadClockStatus) bool {
				ran, due := c.time.Now().Sub(s.BeganAt.Time), 0
				for _, lead := range leads {
					if ran >= limit-lead {
						due++
					}
				}
				return len(s.Leads) == due
			})
			left = left || len(s.Leads) < len(leads)
		}
	}
}

// noticesOf are the warnings that a workload's people are to have, in words.
func noticesOf(w workload, began time.Time, limit time.Duration) (list []string) {
	for _, lead := range leads {
		list = append(list, fmt.Sprintf("%s %s: WorkloadEnding due %s, %s before %s", w.kind, w.GetName(),
			began.Add(limit-lead).UTC().Format(time.RFC3339), lead, began.Add(limit).UTC().Format(time.RFC3339)))
	}
	return list
}

// wasTold compares the warnings about what is in a namespace.
func (c *timed) wasTold(t *testing.T, ns string, want ...string) {
	t.Helper()
	got := map[string]int{}
	for _, n := range c.told(t, ns) {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadStopped {
			continue
		}
		text := fmt.Sprintf("%s %s: %s due %s, %s before %s", n.Spec.Subject.Kind, n.Spec.Subject.Name, n.Spec.Kind,
			n.Spec.DueAt.UTC().Format(time.RFC3339), n.Spec.Lead.Length(), n.Spec.Deadline.UTC().Format(time.RFC3339))
		// The outbox may do that, too, where the next one is due before this is sent.
		if n.Status.Phase == v1alpha1.NoticeSuperseded && n.Status.LastError == "" {
			text += ", superseded"
		}
		got[text]++
	}
	once := map[string]int{}
	for _, text := range want {
		once[text] = len(c.owners(t, ns))
	}
	if diff := cmp.Diff(once, got); diff != "" {
		t.Errorf("what people in %s were told differs (-want +got)\n%s", ns, diff)
	}
}

// owners are those of the project of that name.
func (c *timed) owners(t *testing.T, name string) []v1alpha1.Owner {
	t.Helper()
	p := project(name)
	if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	return p.Spec.Owners
}

// awaitMarked waits until all of the workload's pods say when they end.
func (c *timed) awaitMarked(t *testing.T, w workload) {
	t.Helper()
	want := c.end(t, w).UTC().Format(time.RFC3339)
	c.await(t, func() error {
		for _, p := range c.podsOf(t, w.GetNamespace()) {
			if p.Labels["app"] == w.GetName() && p.DeletionTimestamp == nil && p.Annotations[v1alpha1.AnnotationEndsAt] != want {
				return errNotYet(p.Name+" says that it ends at "+want, p.Annotations[v1alpha1.AnnotationEndsAt])
			}
		}
		return nil
	})
}

// shownRunning checks what people see of workloads that run.
func (c *timed) shownRunning(t *testing.T, ns string) {
	t.Helper()
	for line := range strings.Lines(c.kubectl(t, "get", "workloadclocks", "-n", ns, "--no-headers")) {
		if !strings.Contains(strings.Join(strings.Fields(line), " "), " 48h Running 0s ") || !strings.Contains(line, "MaxRuntime") {
			t.Errorf("kubectl get workloadclocks shows\n%s", line)
		}
	}
	shown := c.run(t, "clocks", "-n", ns)
	for _, want := range []string{"Pod/notebook", "Job/training", "Deployment/model", "StatefulSet/ring", "47h59m"} {
		if !strings.Contains(shown, want) {
			t.Errorf("sluice clocks does not show %s:\n%s", want, shown)
		}
	}
}

// shownStopped checks what people see of workloads that were stopped.
func (c *timed) shownStopped(t *testing.T, ns string, workloads []workload) {
	t.Helper()
	stopped := 0
	for _, n := range c.told(t, ns) {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadStopped {
			stopped++
		}
	}
	if stopped != len(workloads) {
		t.Errorf("people were told of %d stops, want %d", stopped, len(workloads))
	}
	for _, w := range workloads {
		s := c.status(t, w)
		until := s.Stopped.At.Add(time.Hour).UTC()
		if got := ptr.Deref(s.Stopped.Until, s.Stopped.At).UTC(); !got.Equal(until) || !strings.HasPrefix(s.Local.Ends, "stopped until ") {
			t.Errorf("%s was stopped until %s (%s), want %s", w.GetName(), got, s.Local.Ends, until)
		}
		if _, bare := w.Object.(*corev1.Pod); bare {
			continue
		}
		if got, want := w.GetAnnotations()[v1alpha1.AnnotationStoppedUntil], until.Format(time.RFC3339); got != want {
			t.Errorf("%s says that it is stopped until %q, want %s", w.GetName(), got, want)
		}
		c.await(t, func() error {
			if said := c.kubectl(t, "describe", w.kind, w.GetName(), "-n", ns); !strings.Contains(said, "it has run for 48h, as long as workloads of type") {
				return errNotYet("an event says why it was stopped", said)
			}
			return nil
		})
	}
}
