// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// `sluice pause` works while the webhook is down, admits what a team's policy refuses, holds the end of a workload
// although lifecycle is killed meanwhile, and ends by itself: the policy refuses again, and the workload ends half
// an hour, the shortest lead, after the pause. Guards invariants 5 and 8 of the design.
func TestSluicePause(t *testing.T) {
	c := newPolicyTimeCluster(t)
	const ns = "paused"
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	job := newJobWorkload(ns, "long", migDevice)
	c.startWorkloads(t, job)
	c.createForTest(t, &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: v1alpha1.PolicySpec{
		Rego: "package broken\n\ndeny contains \"nothing starts\"\n", Match: v1alpha1.PolicyMatch{Projects: []string{ns}},
		Enforcement: v1alpha1.EnforcementDeny,
	}})
	received := &warnings{}
	pods := c.impersonate(t, "paul", received).CoreV1().Pods(ns)
	c.grantPodAccess(t, "pause-pods", "paul")
	create := func() (*corev1.Pod, error) {
		p := newPod(ns, "")
		p.GenerateName = "refused-"
		return pods.Create(t.Context(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	requireRefused := func() {
		t.Helper()
		c.eventuallyAfterStep(t, func() error {
			if _, err := create(); err == nil || !strings.Contains(err.Error(), "nothing starts") {
				return unexpectedState("the policy refuses the pod", err)
			}
			return nil
		})
	}
	requireRefused()
	c.assertPauseRights(t)

	c.advanceTimeTo(t, c.deadline(t, job).Add(-time.Hour))
	c.stopWebhook(t)
	if out := c.runSluice(t, "pause", "--for", "3h", "--reason", "policy broken refuses every pod"); !strings.Contains(out, "Sluice is paused until") {
		t.Errorf("sluice pause prints\n%s", out)
	}
	c.killComponents(t, "webhook")
	until := c.pause(t).Until.Time
	c.eventuallyAfterStep(t, func() error {
		p, err := create()
		if err != nil {
			return err
		}
		if decisions := p.Annotations[v1alpha1.AnnotationDecisions]; !strings.Contains(decisions, `"broken":["denial paused"]`) {
			return unexpectedState("the pod records the paused denial", decisions)
		}
		return nil
	})
	if all := strings.Join(received.sorted(), "\n"); !strings.Contains(all, "until when policies are paused: nothing starts (policy broken)") {
		t.Errorf("warnings: %s", all)
	}
	held := c.waitForClock(t, job, "is held", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Limit.HeldFrom != nil })
	if want := until.Add(30 * time.Minute); !held.Deadline.At.Time.Equal(want) || held.Deadline.HeldFrom == nil {
		t.Errorf("the deadline is %v, want %s, held", held.Deadline, want)
	}
	c.eventuallyAfterStep(t, func() error {
		out, err := c.kubectl(t.Context(), "get", "admissionparameters", "sluice", "--no-headers", "-o", `jsonpath={.status.conditions[?(@.type=="Paused")].status}`)
		if err != nil || out != "True" {
			return unexpectedState("the condition Paused is True", fmt.Sprint(out, err))
		}
		return nil
	})
	c.advanceTime(t, 2*time.Hour) // an hour past the limit
	c.restartLifecycle(t, func() {})
	c.assertRunning(t, "an hour past its limit, in the pause", job)

	c.restartLifecycle(t, func() { c.advanceTimeTo(t, until.Add(-time.Minute)) })
	c.assertRunning(t, "a minute before the end of the pause", job)
	c.advanceTimeTo(t, until)
	requireRefused()
	c.waitForClock(t, job, "has the last warning", func(s *v1alpha1.WorkloadClockStatus) bool {
		last := s.Leads[len(s.Leads)-1]
		return last.Lead.Length() == 30*time.Minute && !last.At.Time.Before(until)
	})
	c.advanceTimeTo(t, c.deadline(t, job).Add(-5*time.Minute))
	c.assertRunning(t, "five minutes before the held deadline", job)
	c.advanceTimeTo(t, c.deadline(t, job))
	c.assertStopped(t, v1alpha1.EndMaxRuntime, 50*time.Hour, job)
	if stopped := c.clockStatus(t, job).Stopped.At; stopped.Sub(until) < 30*time.Minute {
		t.Errorf("stopped %s after the pause, want half an hour", stopped.Sub(until))
	}
	if out := c.runSluice(t, "pause"); !strings.Contains(out, "Sluice is not paused. The last pause ended") {
		t.Errorf("sluice pause prints\n%s", out)
	}
	c.eventuallyAfterStep(t, func() error {
		if !strings.Contains(c.mustKubectl(t, "get", "events", "-A"), "The pause of") {
			return unexpectedState("an event says that the pause ended", "none does")
		}
		return nil
	})
}

// pause returns the recorded pause.
func (c *policyTimeCluster) pause(t *testing.T) v1alpha1.Pause {
	t.Helper()
	var parameters v1alpha1.AdmissionParameters
	if err := c.adminClient.Get(t.Context(), client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, &parameters); err != nil {
		t.Fatal(err)
	}
	if parameters.Status.Pause == nil {
		t.Fatal("no pause is recorded")
	}
	return *parameters.Status.Pause
}

// assertPauseRights shows that ClusterRole sluice:pause is enough to pause Sluice, that less is not, and that no user can
// record a pause of another user, or one that is invalid.
func (c *policyTimeCluster) assertPauseRights(t *testing.T) {
	t.Helper()
	c.mustKubectl(t, "create", "clusterrolebinding", "may-pause", "--clusterrole=sluice:pause", "--user=paula")
	patch := func(user, pause string) error {
		_, err := c.kubectl(t.Context(), "patch", "admissionparameters", "sluice", "--subresource=status", "--as="+user, "--type=merge", "-p", `{"status":{"pause":`+pause+`}}`)
		return err
	}
	const valid = `"since":"2026-01-01T00:00:00Z","until":"2026-01-01T02:00:00Z","reason":"x"`
	for name, tc := range map[string]struct{ user, pause, want string }{
		"without a right":    {"otto", `{"by":"otto",` + valid + `}`, "User \"otto\" cannot get resource"},
		"for another user":   {"paula", `{"by":"otto",` + valid + `}`, "status.pause.by must be paula"},
		"ended by another":   {"paula", `{"by":"paula","endedBy":"otto",` + valid + `}`, "status.pause.by must be paula"},
		"for a week":         {"paula", `{"by":"paula","reason":"x","since":"2026-01-01T00:00:00Z","until":"2026-01-08T00:00:00Z"}`, "at most 24h after since"},
		"until before since": {"paula", `{"by":"paula","reason":"x","since":"2026-01-02T00:00:00Z","until":"2026-01-01T00:00:00Z"}`, "until must not be before since"},
		"no reason":          {"paula", `{"by":"paula","reason":"","since":"2026-01-01T00:00:00Z","until":"2026-01-01T02:00:00Z"}`, "status.pause.reason"},
		"garbage":            {"paula", `{"by":"paula","reason":"x","since":"now","until":"later"}`, "status.pause.since"},
		"no time":            {"paula", `{"by":"paula","reason":"x"}`, "status.pause.until"},
	} {
		c.eventuallyAfterStep(t, func() error {
			if err := patch(tc.user, tc.pause); err == nil || !strings.Contains(err.Error(), tc.want) {
				return unexpectedState(name+": refused with "+tc.want, err)
			}
			return nil
		})
	}
	if err := patch("paula", `{"by":"paula",`+valid+`}`); err != nil {
		t.Errorf("a pause by a user with the role: %v", err)
	}
	if err := patch("paula", "null"); err == nil || !strings.Contains(err.Error(), "must not be removed") {
		t.Errorf("the removal of a pause: %v", err)
	}
	if diff := cmp.Diff("paula", c.pause(t).By); diff != "" {
		t.Errorf("paused by (-want +got):\n%s", diff)
	}
	if out, err := exec.CommandContext(t.Context(), c.binary, "resume", "--dir", c.dir).CombinedOutput(); err == nil || !strings.Contains(string(out), "Sluice is not paused") {
		t.Errorf("sluice resume without a pause in force: %v: %s", err, out)
	}
}
