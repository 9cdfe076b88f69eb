// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"sluice.dev/api/v1alpha1"
)

// usageReport is what `sluice report --output json` says of who used how much.
type usageReport struct {
	Rows []struct {
		Department, Project, User, Type string
		GPUMilliSeconds                 int64
	}
	GPUMilliSeconds int64
}

// gpuUsageOf is a user's use in a month, in GPU-milli-seconds.
func (c *policyTimeCluster) gpuUsageOf(t *testing.T, month, user string) (used int64) {
	t.Helper()
	var said usageReport
	out := c.runSluice(t, "report", "--month", month, "--project", "usage-lab", "--output", "json")
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, row := range said.Rows {
		if row.User == user {
			used += row.GPUMilliSeconds
		}
	}
	return used
}

// Two people's pods run for days, over the end of a month and a crash of lifecycle:
// the report has their hours, in the department's months, neither less nor more.
func TestUsageReport(t *testing.T) {
	const ns, anna, ben = "usage-lab", "anna@example.org", "ben@example.org"
	c := newPolicyTimeCluster(t)
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	c.createForTest(t, &v1alpha1.Department{ // in which nothing ends
		ObjectMeta: metav1.ObjectMeta{Name: "usage"},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx-mig", "1", "2")},
			Notices:   v1alpha1.NoticeTerms{TimeZone: zone.String()},
		},
	})
	c.createGovernedProject(t, "usage", ns, newPoolQuota("dgx-mig", "1", "2"))
	c.grantPodAccess(t, "usage", anna, ben)

	now := c.clockFile.Now().In(zone)
	begin := time.Date(now.Year(), now.Month()+1, 2, 0, 0, 0, 0, zone)
	end := time.Date(now.Year(), now.Month()+2, 1, 0, 0, 0, 0, zone)
	first, second := begin.Format("2006-01"), end.Format("2006-01")
	c.advanceTimeTo(t, begin)
	c.waitForNextSecond(t) // and what comes after it, as after
	for user, name := range map[string]string{anna: "folding", ben: "training"} {
		template := halfGPUTemplate(name)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec}
		if _, err := c.impersonate(t, user, rest.NoWarnings{}).CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.waitForRunningPods(t, ns, 2)

	// about is half a GPU for so many hours: a pod that is accounted for is late by
	// what this machine takes to start it and to end it, and no more.
	const slack = 5 * 60 * 500
	about := func(month, user string, hours float64) func() error {
		return func() error {
			want := int64(hours * 3600 * 500)
			if got := c.gpuUsageOf(t, month, user); got < want-slack || got > want+slack {
				return unexpectedState(fmt.Sprintf("%s used %d GPU-milli-seconds in %s", user, want, month), got)
			}
			return nil
		}
	}
	c.advanceTime(t, 100*time.Hour)
	c.eventuallyAfterStep(t, about(first, ben, 100)) // while it runs, a minute later at most
	c.restartLifecycle(t, func() {})
	if err := c.adminClient.Delete(t.Context(), newPod(ns, "training")); err != nil {
		t.Fatal(err)
	}
	c.waitForRunningPods(t, ns, 1)
	c.advanceTimeTo(t, end.Add(10*time.Hour))
	c.eventuallyAfterStep(t, about(second, anna, 10))
	if err := c.adminClient.Delete(t.Context(), newPod(ns, "folding")); err != nil {
		t.Fatal(err)
	}
	c.waitForRunningPods(t, ns, 0)
	ran := end.Sub(begin).Hours()
	for _, condition := range []func() error{about(first, anna, ran), about(first, ben, 100), about(second, anna, 10)} {
		c.eventuallyAfterStep(t, condition)
	}
	if used := c.gpuUsageOf(t, second, ben); used != 0 {
		t.Errorf("what ended in %s used %d GPU-milli-seconds in %s", first, used, second)
	}

	table := c.runSluice(t, "report", "--month", first, "--project", ns)
	csv := c.runSluice(t, "report", "--month", first, "--project", ns, "--output", "csv")
	for user, hours := range map[string]float64{anna: ran / 2, ben: 50} {
		if line := fmt.Sprintf("%.1f", hours); !containsLineWith(table, user, line) {
			t.Errorf("the table does not have %s h of %s:\n%s", line, user, table)
		}
		exact := fmt.Sprintf(",%d", c.gpuUsageOf(t, first, user))
		if !containsLineWith(csv, first+",usage,"+ns+","+user+",train,", exact) {
			t.Errorf("the CSV does not have %s of %s:\n%s", exact, user, csv)
		}
	}
}

// containsLineWith tells whether a line of a text has both.
func containsLineWith(text, one, other string) bool {
	for line := range strings.Lines(text) {
		if strings.Contains(line, one) && strings.Contains(line, other) {
			return true
		}
	}
	return false
}
