// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/audit"
)

// Objects that exist when a policy is applied are found by the audit: in the Report of their namespace, in the status of the policy and
// on the command line. What the policies admitted has no findings. The next audit writes nothing but its record.
func TestAuditFindsExistingObjects(t *testing.T) {
	c := newPolicyTimeCluster(t)
	const ns = "audited"
	c.mustKubectl(t, "apply", "-f", filepath.Join("..", "..", "policies", "audit", "testdata", "openreports.io_reports.yaml"))
	c.createForTest(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: v1alpha1.DepartmentSpec{NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx", "3", "3")}},
	})
	c.createGovernedProject(t, ns, ns, newPoolQuota("dgx", "3", "3"))
	spec := func(image string, limits corev1.ResourceList) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image, Resources: corev1.ResourceRequirements{Limits: limits}}}}
	}
	gpu := corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse("1")}
	c.createForTest(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "old"}, Spec: spec("sleep:latest", gpu)})
	c.createForTest(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "good"}, Spec: spec("sleep:v1", gpu)})
	replicas, labels := int32(2), map[string]string{"app": "web"}
	c.createForTest(t, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec("sleep:latest", nil)},
	}})
	c.eventuallyAfterStep(t, func() error {
		var pods corev1.PodList
		if err := c.adminClient.List(t.Context(), &pods, client.InNamespace(ns)); err != nil || len(pods.Items) != 4 {
			return fmt.Errorf("%d pods: %w", len(pods.Items), errors.Join(err, errors.New("want 4")))
		}
		return nil
	})
	c.createForTest(t, &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "pinned-images"}, Spec: v1alpha1.PolicySpec{
		Rego: "package pinned_images\ndeny contains {\"msg\": sprintf(\"image %s has no fixed version\", [c.image]), \"fix\": \"name a version\"} if {\n" +
			"\tsome c in input.object.spec.containers\n\tendswith(c.image, \":latest\")\n}\n",
	}})
	policy := &v1alpha1.Policy{}
	c.eventuallyAfterStep(t, func() error {
		err := c.adminClient.Get(t.Context(), client.ObjectKey{Name: "pinned-images"}, policy)
		if err == nil && policy.Status.EnforcedGeneration != policy.Generation {
			err = unexpectedState("the policy is in force", policy.Status)
		}
		return err
	})

	first := c.waitForAudit(t, time.Time{})
	if first.Reports != v1alpha1.AuditReportsOpenReports || first.Unevaluated != 0 {
		t.Errorf("record of the first audit: %+v", first)
	}
	report, entries := c.auditReport(t, ns)
	var found []string
	for i := range entries {
		e := &entries[i]
		found = append(found, fmt.Sprintf("%s %s %s/%s pods=%d", e.Policy, e.Result, e.Kind, e.Name, e.Pods))
	}
	if want := []string{"pinned-images Denied Deployment/web pods=2", "pinned-images Denied Pod/old pods=0"}; !slices.Equal(found, want) {
		t.Errorf("the report has %q, want %q", found, want)
	}
	if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
		t.Fatal(err)
	}
	figures := policy.Status.Audit
	if figures == nil || figures.Violations != 2 || len(figures.Examples) != 2 {
		t.Fatalf("figures in the status: %+v", figures)
	}
	if out := c.runSluice(t, "policy", "audit", "--latest", "--project", ns); !strings.Contains(out, "sleep:latest has no fixed version") {
		t.Errorf("sluice policy audit --latest prints\n%s", out)
	} else {
		t.Logf("sluice policy audit --latest --project %s\n%s", ns, out)
	}
	now, err := exec.CommandContext(t.Context(), c.binary, "policy", "audit", "--fail", "--project", ns, "--dir", c.dir).CombinedOutput()
	if err == nil || !strings.Contains(string(now), "violations of policies in Deny: 2") {
		t.Errorf("sluice policy audit --fail: %v\n%s", err, now)
	}
	t.Logf("sluice policy audit --fail --project %s\n%s", ns, now)

	c.waitForAudit(t, first.Time.Time)
	again, _ := c.auditReport(t, ns)
	if again.GetResourceVersion() != report.GetResourceVersion() {
		t.Error("the second audit wrote the report again")
	}
	if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
		t.Fatal(err)
	}
	if !policy.Status.Audit.ChangedAt.Equal(&figures.ChangedAt) {
		t.Errorf("the second audit wrote the figures again: %+v, before %+v", policy.Status.Audit, figures)
	}
}

// waitForAudit advances policy time to the next run of the schedule, and waits for the record of an audit that started after another
// one.
func (c *policyTimeCluster) waitForAudit(t *testing.T, after time.Time) v1alpha1.AuditRecord {
	t.Helper()
	at := c.clockFile.Now()
	c.advanceTime(t, 24*time.Hour)
	var record v1alpha1.AuditRecord
	c.eventuallyAfterStep(t, func() error {
		parameters := &v1alpha1.AdmissionParameters{}
		if err := c.adminClient.Get(t.Context(), client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, parameters); err != nil {
			return err
		}
		if r := parameters.Status.Audit; r == nil || !r.Time.After(at) || !r.Time.After(after) {
			return unexpectedState("an audit has finished", r)
		}
		record = *parameters.Status.Audit
		return nil
	})
	return record
}

// auditReport returns the Report of a namespace with its entries.
func (c *policyTimeCluster) auditReport(t *testing.T, namespace string) (*unstructured.Unstructured, []audit.Entry) {
	t.Helper()
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(audit.OpenReportKind)
	if err := c.adminClient.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: audit.OpenReportName}, report); err != nil {
		t.Fatal(err)
	}
	entries, omitted := audit.ParseOpenReport(report)
	if omitted != 0 {
		t.Errorf("the report omits %d results", omitted)
	}
	return report, entries
}
