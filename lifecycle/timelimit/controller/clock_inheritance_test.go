// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
)

// Protects invariant 12: a user's workload does not inherit the time that another user's
// workload ran with the same template, under another name or the same.
func TestClockIsNotInheritedFromAnotherUser(t *testing.T) {
	for _, kind := range []schema.GroupVersionKind{podKind, jobKind, rayClusterKind} {
		for _, name := range []string{"work", "bobs-work"} {
			t.Run(kind.Kind+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newTeamCluster(t)
					c.create(kind, "work", alice)
					c.advance(47 * time.Hour)
					c.delete(kind, "work")
					c.create(kind, name, bob)
					c.create(kind, "carols-work", carol)
					c.advance(2 * time.Hour)
					c.expectRan(kind, name, 2*time.Hour)
					c.expectRan(kind, "carols-work", 2*time.Hour)
				})
			})
		}
	}
}

// Protects invariant 12: while the pods of a deleted workload terminate, another user's
// workload of the same name does not count from their start.
func TestClockOfReusedNameStartsAtItsCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.create(jobKind, "work", alice)
		c.advance(47 * time.Hour)
		old := c.getObject(jobKind, "work")
		if err := c.rawClient.Delete(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		c.terminate(old.GetUID() + "-pod")
		c.create(jobKind, "work", bob)
		c.advance(time.Minute)
		c.endPods(old.GetUID())
		c.advance(2 * time.Hour)
		c.expectRan(jobKind, "work", 2*time.Hour+time.Minute)
	})
}

// Protects the time limit: a user who reuses the name of another user's deleted workload
// neither resets nor continues its time. Its creator continues it under the name, and as a copy.
func TestReusedNameKeepsTheFormerClock(t *testing.T) {
	for _, kind := range []schema.GroupVersionKind{podKind, jobKind, rayClusterKind} {
		for _, again := range []string{"work", "copy"} {
			t.Run(kind.Kind+" "+again, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newTeamCluster(t)
					c.create(kind, "work", alice)
					c.advance(40 * time.Hour)
					for _, other := range []string{bob, carol} {
						c.delete(kind, "work")
						c.create(kind, "work", other)
						c.advance(20 * time.Minute)
						c.expectRan(kind, "work", 20*time.Minute)
					}
					c.delete(kind, "work")
					c.create(kind, again, alice)
					c.advance(10 * time.Minute)
					c.expectRan(kind, again, 40*time.Hour+10*time.Minute)
					c.delete(kind, again)
					c.create(kind, "work", bob)
					c.advance(10 * time.Minute)
					if again == "work" { // he continues his own time, and she hers
						c.expectRan(kind, "work", 30*time.Minute)
						c.delete(kind, "work")
						c.create(kind, "work", alice)
						c.expectRan(kind, "work", 40*time.Hour+10*time.Minute)
					}
				})
			})
		}
	}
}

// The time of a former clock is reset after resetAfter, as that of any other clock.
func TestFormerClockIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.create(jobKind, "work", alice)
		c.advance(40 * time.Hour)
		c.delete(jobKind, "work")
		c.create(jobKind, "work", bob)
		c.advance(61 * time.Minute)
		c.delete(jobKind, "work")
		c.create(jobKind, "work", alice)
		c.advance(time.Hour)
		c.expectRan(jobKind, "work", time.Hour)
	})
}

// Protects the time limit: the stop of a deleted workload applies to its creator also after
// another user reused the name, and not to that user.
func TestReusedNameKeepsTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.create(jobKind, "work", alice)
		c.advance(48 * time.Hour)
		if !ptr.Deref(c.getJob("work").Spec.Suspend, false) {
			t.Fatal("it was not stopped at its limit")
		}
		c.delete(jobKind, "work")
		c.create(jobKind, "work", bob)
		c.advance(10 * time.Minute)
		c.expectRan(jobKind, "work", 10*time.Minute)
		c.delete(jobKind, "work")
		c.create(jobKind, "work", alice)
		c.advance(time.Minute)
		if !ptr.Deref(c.getJob("work").Spec.Suspend, false) {
			t.Error("it runs although the same user's workload was stopped eleven minutes ago")
		}
	})
}

// A user who deletes a workload and creates it again, at once or under another name,
// continues its time.
func TestClockIsInheritedFromOwnDeletedWorkload(t *testing.T) {
	for _, kind := range []schema.GroupVersionKind{podKind, jobKind, rayClusterKind} {
		for _, name := range []string{"work", "again"} {
			t.Run(kind.Kind+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newTeamCluster(t)
					c.create(kind, "work", alice)
					c.advance(40 * time.Hour)
					c.delete(kind, "work")
					c.advance(time.Minute)
					c.create(kind, name, alice)
					c.advance(time.Hour)
					c.expectRan(kind, name, 41*time.Hour)
				})
			})
		}
	}
	t.Run("while the old pods terminate", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newTeamCluster(t)
			c.create(jobKind, "work", alice)
			c.advance(40 * time.Hour)
			old := c.getObject(jobKind, "work")
			if err := c.rawClient.Delete(t.Context(), old); err != nil {
				t.Fatal(err)
			}
			c.terminate(old.GetUID() + "-pod")
			c.create(jobKind, "again", alice)
			c.endPods(old.GetUID())
			c.advance(time.Hour)
			c.expectRan(jobKind, "again", 41*time.Hour)
		})
	})
}

// Protects invariant 12: Jobs that complete pass no time on, however close they follow each
// other, under generated names or the same, kept or deleted after their completion.
func TestCompletedWorkloadPassesNoTime(t *testing.T) {
	for _, kind := range []schema.GroupVersionKind{podKind, jobKind} {
		for _, sameName := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, same name %v", kind.Kind, sameName), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newTeamCluster(t)
					for i := range 10 {
						name := fmt.Sprint("run-", i)
						if sameName {
							name = "run"
						}
						c.create(kind, name, alice)
						c.advance(5*time.Hour + 30*time.Minute)
						c.expectRan(kind, name, 5*time.Hour+30*time.Minute)
						c.complete(kind, name)
						if sameName || i%2 == 0 {
							c.delete(kind, name)
						}
						c.advance(29 * time.Minute)
					}
				})
			})
		}
	}
}

// Protects users from an early end: the time of a deleted workload passes to one successor. If that
// completes, or another one continues it, the next workload of its name starts at zero.
func TestTimeIsInheritedOnce(t *testing.T) {
	for _, kind := range []schema.GroupVersionKind{podKind, jobKind} {
		for _, former := range []bool{false, true} {
			for _, continued := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, former clock %v, continued %v", kind.Kind, former, continued), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := newTeamCluster(t)
						first, second := "first", "second"
						if former { // another user takes the name meanwhile
							second = first
						}
						c.create(kind, first, alice)
						c.advance(40 * time.Hour)
						c.delete(kind, first)
						if former {
							c.create(kind, first, bob)
							c.advance(time.Minute)
							c.delete(kind, first)
						}
						c.create(kind, second, alice)
						c.advance(10 * time.Minute)
						c.expectRan(kind, second, 40*time.Hour+10*time.Minute)
						if !continued {
							c.complete(kind, second)
						}
						c.delete(kind, second)
						if continued {
							c.create(kind, "third", alice)
							c.advance(10 * time.Minute)
							c.expectRan(kind, "third", 40*time.Hour+20*time.Minute)
						}
						c.create(kind, second, alice)
						c.advance(10 * time.Minute)
						c.expectRan(kind, second, 10*time.Minute)
					})
				})
			}
		}
	}
}

// A Job reports its completion after its last pod ended. The pod's success counts, even if
// the Job was deleted by then. A pod that was deleted does not count.
func TestSucceededPodCompletesItsWorkload(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newTeamCluster(t)
			c.create(jobKind, "run", alice)
			c.advance(40 * time.Hour)
			object := c.getObject(jobKind, "run")
			pod := *c.pods[object.GetUID()+"-pod"]
			live := &unstructured.Unstructured{}
			live.SetGroupVersionKind(podKind)
			live.SetNamespace(pod.Namespace)
			live.SetName(pod.Name)
			live.SetUID(pod.UID)
			live.SetFinalizers([]string{"batch.kubernetes.io/job-tracking"})
			if err := c.rawClient.Create(t.Context(), live); err != nil {
				t.Fatal(err)
			}
			live.Object["status"] = map[string]any{"phase": "Succeeded"}
			if err := c.rawClient.Status().Update(t.Context(), live); err != nil {
				t.Fatal(err)
			}
			if deleted {
				if err := c.rawClient.Delete(t.Context(), live); err != nil {
					t.Fatal(err)
				}
				pod.Deleting = true
			}
			if err := c.rawClient.Delete(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			delete(c.pods, pod.UID)
			c.workloads.handlePodChange(podcache.Change{Before: &pod})
			c.advance(time.Minute)
			c.create(jobKind, "again", alice)
			want := time.Duration(0)
			if deleted {
				want = 40 * time.Hour
			}
			c.expectRan(jobKind, "again", want)
			if len(c.workloads.endedPods) > 0 {
				t.Errorf("ended pods are kept: %v", c.workloads.endedPods)
			}
		})
	}
}

// Protects invariant 12: of the agents of a sweep, only one continues the time of an agent
// that was deleted. The others run on.
func TestOnlyOneSuccessorInheritsAClock(t *testing.T) {
	for _, kind := range []schema.GroupVersionKind{jobKind, rayClusterKind} {
		t.Run(kind.Kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTeamCluster(t)
				for i := range 3 {
					c.create(kind, fmt.Sprint("agent-", i), alice)
				}
				c.advance(40 * time.Hour)
				c.delete(kind, "agent-0")
				for i := 3; i < 6; i++ {
					c.create(kind, fmt.Sprint("agent-", i), alice)
				}
				c.advance(time.Hour)
				const long, short = 41 * time.Hour, time.Hour
				for i, want := range []time.Duration{long, long, long, short, short} {
					c.expectRan(kind, fmt.Sprint("agent-", i+1), want)
				}
				c.create(kind, "agent-0", alice) // its time counts for agent-3
				c.advance(time.Hour)
				c.expectRan(kind, "agent-0", time.Hour)
			})
		})
	}
}

// After a crash at any write exactly one of two successors continues the clock.
func TestOneSuccessorAfterCrashAtAnyWrite(t *testing.T) {
	for at := 1; at <= 12; at++ {
		for _, written := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d, written %v", at, written), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newTeamCluster(t)
					c.create(jobKind, "agent-0", alice)
					c.advance(40 * time.Hour)
					c.delete(jobKind, "agent-0")
					c.crashAt, c.crashAfterWrite = c.calls+at, written
					c.create(jobKind, "agent-1", alice)
					c.create(jobKind, "agent-2", alice)
					c.advance(50 * time.Minute) // less than resetAfter
					inherited := 0
					for _, name := range []string{"agent-1", "agent-2"} {
						if c.clockStatus(jobKind, name).AccumulatedSeconds >= 40*60*60 {
							inherited++
						}
					}
					if inherited != 1 {
						t.Errorf("%d successors inherited the time", inherited)
					}
				})
			})
		}
	}
}

// Protects the time limit: a user who changes to a ServiceAccount, to another one, also of another
// namespace, and back, continues the time.
func TestServiceAccountsResetNoClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		for i, creator := range []string{alice, firstAccount, secondAccount, foreignAccount, alice, foreignAccount} {
			name := fmt.Sprint("work-", i)
			c.create(podKind, name, creator)
			c.advance(7 * time.Hour)
			c.expectRan(podKind, name, time.Duration(i+1)*7*time.Hour)
			c.delete(podKind, name)
			c.advance(time.Minute)
		}
		c.create(podKind, "bobs", bob)
		c.advance(time.Hour)
		c.expectRan(podKind, "bobs", time.Hour)
	})
}

// Protects invariant 12: the students of a course share a namespace, an image and the name
// that the course's instructions give. Each has a clock of the own hours.
func TestStudentsOfACourseHaveTheirOwnClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		for i := range 8 {
			c.create(jobKind, "notebook", fmt.Sprintf("student-%d@example.org", i))
			c.advance(20 * time.Hour)
			c.expectRan(jobKind, "notebook", 20*time.Hour)
			c.delete(jobKind, "notebook")
			c.advance(time.Minute)
		}
	})
}

// The runs of a CronJob pass no time on when they complete. If one is stopped at its limit,
// the later ones are stopped, too, until resetAfter: otherwise a CronJob for every minute
// would use a GPU forever. Another user's CronJob with the same template runs on.
func TestStopOfCronJobRunAppliesToLaterRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		schedules := map[string]types.UID{}
		for name, creator := range map[string]string{"agents": alice, "others": bob} {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(cronJobKind)
			object.SetNamespace(testNamespace)
			object.SetName(name)
			object.SetUID(types.UID("cron-" + name))
			object.SetAnnotations(map[string]string{v1alpha1.AnnotationCreatedBy: creator})
			if err := c.rawClient.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			schedules[name] = object.GetUID()
		}
		run := func(schedule string, minute int) string {
			name := fmt.Sprint(schedule, "-", minute)
			c.create(jobKind, name, cronJobController, func(object *unstructured.Unstructured) {
				object.SetOwnerReferences([]metav1.OwnerReference{{
					APIVersion: "batch/v1", Kind: "CronJob", Name: schedule, UID: schedules[schedule], Controller: ptr.To(true),
				}})
			})
			return name
		}
		for i := range 12 { // sixty hours
			name := run("agents", i)
			c.advance(5 * time.Hour)
			c.expectRan(jobKind, name, 5*time.Hour)
			c.complete(jobKind, name)
		}
		if got := c.clockStatus(jobKind, "agents-0").CreatedBy; got != alice {
			t.Errorf("a run was created by %s, want the creator of its CronJob", got)
		}
		stopped := run("agents", 100)
		c.advance(48 * time.Hour)
		if ptr.Deref(c.getJob(stopped).Spec.ActiveDeadlineSeconds, 0) != 1 {
			t.Fatal("the run was not stopped at its limit")
		}
		for i := 103; i < 160; i += 4 {
			name := run("agents", i)
			c.advance(4 * time.Minute)
			if ptr.Deref(c.getJob(name).Spec.ActiveDeadlineSeconds, 0) != 1 {
				t.Fatalf("run %s runs although an earlier one was stopped %d minutes ago", name, i-100)
			}
			c.delete(jobKind, name) // the history limit of the CronJob
		}
		other := run("others", 160)
		c.advance(time.Minute)
		c.expectRan(jobKind, other, time.Minute)
		next := run("agents", 161)
		c.advance(5 * time.Hour)
		c.expectRan(jobKind, next, 5*time.Hour)
	})
}
