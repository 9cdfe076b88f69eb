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

// usageReport is the output of `sluice report --output json`.
type usageReport struct {
	Rows []struct {
		Department, Project, User, Type string
		GPUMilliSeconds                 int64
	}
	GPUMilliSeconds int64
}

// gpuUsageOf returns a user's usage in a month in GPU-milliseconds.
func (c *policyTimeCluster) gpuUsageOf(t *testing.T, month, user string) (used int64) {
	t.Helper()
	var result usageReport
	out := c.runSluice(t, "report", "--month", month, "--project", "usage-lab", "--output", "json")
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, row := range result.Rows {
		if row.User == user {
			used += row.GPUMilliSeconds
		}
	}
	return used
}

// The pods of two users run for days, across the end of a month and a crash of lifecycle.
// The report contains their exact hours in the months of the department's time zone.
func TestUsageReport(t *testing.T) {
	const ns, anna, ben = "usage-lab", "anna@example.org", "ben@example.org"
	c := newPolicyTimeCluster(t)
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	c.createForTest(t, &v1alpha1.Department{ // without time limits
		ObjectMeta: metav1.ObjectMeta{Name: "usage"},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx-mig", "1", "2")},
			Notices:   v1alpha1.NoticeTerms{TimeZone: zone.String()},
		},
	})
	c.createGovernedProject(t, "usage", ns, newPoolQuota("dgx-mig", "1", "2"))
	c.grantPodAccess(t, "usage", anna, ben)

	now := c.clockFile.Now().In(zone)
	start := time.Date(now.Year(), now.Month()+1, 2, 0, 0, 0, 0, zone)
	end := time.Date(now.Year(), now.Month()+2, 1, 0, 0, 0, 0, zone)
	first, second := start.Format("2006-01"), end.Format("2006-01")
	c.advanceTimeTo(t, start)
	c.waitForNextSecond(t) // later times must differ from the step
	for user, name := range map[string]string{anna: "folding", ben: "training"} {
		template := halfGPUTemplate(name)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec}
		if _, err := c.impersonate(t, user, rest.NoWarnings{}).CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.waitForRunningPods(t, ns, 2)

	// usageNear checks for half a GPU for so many hours. The delay of a busy machine to start and
	// stop the pod may change the usage by slack, half an hour.
	const slack = 30 * 60 * 500
	usageNear := func(month, user string, hours float64) func() error {
		return func() error {
			want := int64(hours * 3600 * 500)
			if got := c.gpuUsageOf(t, month, user); got < want-slack || got > want+slack {
				return unexpectedState(fmt.Sprintf("%s used %d GPU-milliseconds in %s", user, want, month), got)
			}
			return nil
		}
	}
	c.advanceTime(t, 100*time.Hour)
	c.eventuallyAfterStep(t, usageNear(first, ben, 100)) // lifecycle records running pods every minute
	c.restartLifecycle(t, func() {})
	if err := c.adminClient.Delete(t.Context(), newPod(ns, "training")); err != nil {
		t.Fatal(err)
	}
	c.waitForRunningPods(t, ns, 1)
	c.advanceTimeTo(t, end.Add(10*time.Hour))
	c.eventuallyAfterStep(t, usageNear(second, anna, 10))
	if err := c.adminClient.Delete(t.Context(), newPod(ns, "folding")); err != nil {
		t.Fatal(err)
	}
	c.waitForRunningPods(t, ns, 0)
	ran := end.Sub(start).Hours()
	for _, condition := range []func() error{usageNear(first, anna, ran), usageNear(first, ben, 100), usageNear(second, anna, 10)} {
		c.eventuallyAfterStep(t, condition)
	}
	if used := c.gpuUsageOf(t, second, ben); used != 0 {
		t.Errorf("the pod that ended in %s used %d GPU-milliseconds in %s", first, used, second)
	}

	table := c.runSluice(t, "report", "--month", first, "--project", ns)
	csvReport := c.runSluice(t, "report", "--month", first, "--project", ns, "--output", "csv")
	for _, user := range []string{anna, ben} {
		const tenthHour = 360 * 1000 // GPU-milliseconds
		used := c.gpuUsageOf(t, first, user)
		tenths := (used + tenthHour/2) / tenthHour
		if hours := fmt.Sprintf("%d.%d", tenths/10, tenths%10); !containsLineWith(table, user, hours) {
			t.Errorf("the table does not contain %s h of %s:\n%s", hours, user, table)
		}
		exact := fmt.Sprintf(",%d", used)
		if !containsLineWith(csvReport, first+",usage,"+ns+","+user+",train,", exact) {
			t.Errorf("the CSV does not contain %s of %s:\n%s", exact, user, csvReport)
		}
	}
}

// containsLineWith reports whether a line of the text contains both strings.
func containsLineWith(text, first, second string) bool {
	for line := range strings.Lines(text) {
		if strings.Contains(line, first) && strings.Contains(line, second) {
			return true
		}
	}
	return false
}
