// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
)

var startTime = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// reporter is a replica of the webhook in these tests.
type reporter struct {
	name     string
	version  engine.Version
	counter  replica.Counter
	missing  []replica.Missing
	ended    bool
	renewals int
	renewed  time.Time
}

func newTestVersion(generation int64) engine.Version {
	return engine.Version{Policy: "team", Generation: generation, Digest: strings.Repeat("0", 2*engine.VersionDigestBytes)}
}

func newReporter(name string, generation int64) *reporter {
	return &reporter{name: replica.LeasePrefix + name, version: newTestVersion(generation)}
}

func (r *reporter) violate(project string, times int) {
	for range times {
		r.counter.Add(r.version, v1alpha1.PolicyExample{
			Time: metav1.NewTime(startTime), Project: project, Kind: "Pod", Namespace: project, Name: "a", Message: "no",
		})
	}
}

// renew returns the Lease as the replica writes it now.
func (r *reporter) renew(t *testing.T, now time.Time) {
	t.Helper()
	r.renewals++
	r.renewed = now
}

func (r *reporter) lease(t *testing.T) coordinationv1.Lease {
	t.Helper()
	versions := []engine.Version{r.version}
	report := replica.NewReport("v1", versions, r.counter.Violations(versions))
	report.Ended, report.Missing = r.ended, r.missing
	text, err := replica.Encode(report)
	if err != nil {
		t.Fatal(err)
	}
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.name, Namespace: v1alpha1.SystemNamespace, ResourceVersion: strconv.Itoa(r.renewals), Labels: replica.Labels(),
			Annotations: map[string]string{v1alpha1.ReplicaReportAnnotation: text},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: r.renewed}},
	}
}

// lifecycleProcess is one run of lifecycle, which has seen nothing before.
type lifecycleProcess struct{ observer replica.Observer }

// update returns the status after the present reports.
func (l *lifecycleProcess) update(t *testing.T, before v1alpha1.PolicyStatus, generation int64, now time.Time, reporters ...*reporter) v1alpha1.PolicyStatus {
	t.Helper()
	var leases []coordinationv1.Lease
	for _, r := range reporters {
		leases = append(leases, r.lease(t))
	}
	view := newReplicaView(newTestVersion(generation), l.observer.Observe(leases, now), now, "")
	status := *before.DeepCopy()
	status.EnforcedGeneration = generation
	addReplicas(&status, &before, view, true, metav1.NewTime(now))
	again := *status.DeepCopy()
	addReplicas(&again, &status, view, true, metav1.NewTime(now.Add(time.Second)))
	if diff := cmp.Diff(status, again); diff != "" {
		t.Errorf("the second update changes the status (-first +second)\n%s", diff)
	}
	return status
}

// Violations are neither lost nor counted twice when replicas of the webhook or lifecycle restart, and start at 0 with a new
// generation of the policy. Guards invariant 11 of the design.
func TestViolationsSurviveRestarts(t *testing.T) {
	now := startTime
	check := func(status v1alpha1.PolicyStatus, total int64, projects map[string]int64, what string) {
		t.Helper()
		if got := sumOf(status.ViolationsByProject); status.Violations != total || cmp.Diff(projects, got) != "" {
			t.Errorf("%s: %d violations, %v; want %d, %v", what, status.Violations, got, total, projects)
		}
	}
	lifecycle := &lifecycleProcess{}
	a, b := newReporter("a", 1), newReporter("b", 1)
	a.violate("x", 3)
	b.violate("x", 2)
	b.violate("y", 1)
	status := lifecycle.update(t, v1alpha1.PolicyStatus{}, 1, now, a, b)
	check(status, 6, map[string]int64{"x": 5, "y": 1}, "two replicas")

	a.violate("y", 4)
	a.renew(t, now)
	lifecycle = &lifecycleProcess{}
	status = lifecycle.update(t, status, 1, now, a, b)
	check(status, 10, map[string]int64{"x": 5, "y": 5}, "another lifecycle")

	// b was killed, and c started in its place.
	c := newReporter("c", 1)
	c.violate("z", 1)
	now = now.Add(replica.RetentionPeriod)
	a.renew(t, now)
	status = lifecycle.update(t, status, 1, now, a, b, c)
	check(status, 11, map[string]int64{"x": 5, "y": 5, "z": 1}, "b is included")
	if status.EndedReplicas == nil || !cmp.Equal(status.EndedReplicas.Replicas, []string{b.name}) || status.EndedReplicas.Violations != 3 {
		t.Errorf("ended replicas: %+v", status.EndedReplicas)
	}
	// lifecycle was killed before it deleted the Lease of b.
	lifecycle = &lifecycleProcess{}
	status = lifecycle.update(t, status, 1, now, a, b, c)
	check(status, 11, map[string]int64{"x": 5, "y": 5, "z": 1}, "b is included, and still there")
	status = lifecycle.update(t, status, 1, now, a, c)
	check(status, 11, map[string]int64{"x": 5, "y": 5, "z": 1}, "b is deleted")
	if len(status.EndedReplicas.Replicas) > 0 {
		t.Errorf("ended replicas: %+v", status.EndedReplicas)
	}
	if len(status.Examples) != 3 {
		t.Errorf("examples: %+v", status.Examples)
	}

	status = lifecycle.update(t, status, 2, now, a, c)
	check(status, 0, map[string]int64{}, "a new generation that no replica has")
	d := newReporter("d", 2)
	d.violate("x", 1)
	status = lifecycle.update(t, status, 2, now, a, c, d)
	check(status, 1, map[string]int64{"x": 1}, "a new generation")
	if status.EndedReplicas != nil || len(status.Examples) != 1 {
		t.Errorf("of the former generation: %+v, %+v", status.EndedReplicas, status.Examples)
	}
}

// The status stays small and correct for any number of projects and replicas that ended. Guards invariant 10 of the design.
func TestViolationsAreBounded(t *testing.T) {
	lifecycle, status, now := &lifecycleProcess{}, v1alpha1.PolicyStatus{}, startTime
	var all []*reporter
	for i := range 300 {
		r := newReporter(strconv.Itoa(1000+i), 1)
		r.violate("project-"+strconv.Itoa(i), 1+i%3)
		all = append(all, r)
	}
	lifecycle.update(t, status, 1, now, all...)
	now = now.Add(replica.RetentionPeriod)
	status = lifecycle.update(t, status, 1, now, all...)
	if status.Violations != 600 || len(status.ViolationsByProject) != 20 || len(status.Examples) != 5 ||
		len(status.EndedReplicas.Replicas) != maxEndedReplicas || len(status.EndedReplicas.Projects) != maxEndedProjects {
		t.Errorf("%d violations of %d projects, %d examples, ended %d of %d projects", status.Violations, len(status.ViolationsByProject),
			len(status.Examples), len(status.EndedReplicas.Replicas), len(status.EndedReplicas.Projects))
	}
}

func TestEnforcedAndTimedOutConditions(t *testing.T) {
	first, second, old := newReporter("a", 5), newReporter("b", 5), newReporter("c", 4)
	ended := newReporter("d", 4)
	ended.ended = true
	for _, r := range []*reporter{first, second, old, ended} {
		r.renewed = startTime
	}
	text := func(status v1alpha1.PolicyStatus, name string) string {
		condition := meta.FindStatusCondition(status.Conditions, name)
		if condition == nil {
			return ""
		}
		return string(condition.Status) + " " + condition.Reason + " " + condition.Message
	}
	lifecycle := &lifecycleProcess{}
	status := lifecycle.update(t, v1alpha1.PolicyStatus{}, 5, startTime, first, second, old, ended)
	if got, want := text(status, "Enforced"),
		"False ReplicasDiffer 2 of 3 webhook replicas have generation 5: sluice-webhook-c (v1) has generation 4"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	old.version = newTestVersion(5)
	old.renew(t, startTime)
	for range 2 {
		first.counter.AddTimeOut(first.version, "x")
	}
	first.renew(t, startTime)
	status = lifecycle.update(t, status, 5, startTime, first, second, old, ended)
	if got, want := text(status, "Enforced"), "True Enforced 3 of 3 webhook replicas have generation 5"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := text(status, "TimedOut"), "True TimedOut 2 evaluations of the last hour took longer than a policy may; "+
		"these objects were refused. By project: x 2"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for range 3 {
		second.counter.AddTimeOut(second.version, "y")
	}
	second.counter.AddTimeOut(second.version, "x")
	second.renew(t, startTime)
	status = lifecycle.update(t, status, 5, startTime, first, second)
	if got := text(status, "TimedOut"); !strings.HasSuffix(got, "By project: x 3, y 3") {
		t.Errorf("got %s", got)
	}
	first.counter.Reset()
	second.counter.Reset()
	first.renew(t, startTime)
	second.renew(t, startTime)
	later := startTime.Add(replica.LeaseDuration)
	status = lifecycle.update(t, status, 5, later, first, second)
	later = later.Add(replica.LeaseDuration)
	status = lifecycle.update(t, status, 5, later, first, second)
	if got := text(status, "Enforced"); !strings.HasPrefix(got, "Unknown NoReplicas") {
		t.Errorf("no live replica: %s", got)
	}
	if got := text(status, "TimedOut"); got != "" {
		t.Errorf("an hour later: %s", got)
	}
}

// A policy that fails in a replica because a kind is too large is not enforced, and the condition says why.
func TestEnforcedConditionNamesMissingData(t *testing.T) {
	first, second := newReporter("a", 5), newReporter("b", 5)
	second.missing = []replica.Missing{{Policy: "other", Data: "x"}, {Policy: "team", Data: "data.objects.StorageClass cannot be read: too large"}}
	first.renewed, second.renewed = startTime, startTime
	lifecycle := &lifecycleProcess{}
	status := lifecycle.update(t, v1alpha1.PolicyStatus{}, 5, startTime, first, second)
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionEnforced)
	want := "2 of 2 webhook replicas have generation 5, and in 1 of them the policy fails, because data is missing: " +
		"sluice-webhook-b: data.objects.StorageClass cannot be read: too large"
	if condition.Status != metav1.ConditionFalse || condition.Reason != "DataMissing" || condition.Message != want {
		t.Errorf("the condition is %+v, want %q", condition, want)
	}
	second.missing = nil
	second.renew(t, startTime)
	status = lifecycle.update(t, status, 5, startTime, first, second)
	if condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionEnforced); condition.Status != metav1.ConditionTrue {
		t.Errorf("with all data: %+v", condition)
	}
}
