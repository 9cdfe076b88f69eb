// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policyaudit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/config"
	"sluice.dev/policies/audit"
	"sluice.dev/policies/engine"
	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m, clustertest.InstallKinds) }

// An audit is due at each time of the schedule, and after the policies have changed and then stayed the same.
func TestTrigger(t *testing.T) {
	c := config.Audit{Schedule: "0 3 * * *", TimeZone: "UTC"}
	c.PolicyChangeDelay.Duration = 5 * time.Minute
	day := func(hour, minute int) time.Time { return time.Date(2026, 11, 28, hour, minute, 0, 0, time.UTC) }
	last := func(at time.Time, digest string) *v1alpha1.AuditRecord {
		return &v1alpha1.AuditRecord{Time: metav1.NewTime(at), Policies: digest}
	}
	type check struct {
		after  time.Duration // since the start, in machine time and policy time
		digest string
		last   *v1alpha1.AuditRecord
		due    bool
	}
	for name, checks := range map[string][]check{
		"the first one": {{0, "a", nil, false}, {4 * time.Minute, "a", nil, false}, {5 * time.Minute, "a", nil, true}},
		"at rest":       {{0, "a", last(day(3, 0), "a"), false}, {10 * time.Hour, "a", last(day(3, 0), "a"), false}},
		"the schedule":  {{14 * time.Hour, "a", last(day(3, 0), "a"), false}, {15 * time.Hour, "a", last(day(3, 0), "a"), true}},
		"while it was stopped": {
			{0, "a", last(day(-30, 0), "a"), true},
		},
		"policies change": {
			{0, "a", last(day(3, 0), "a"), false},
			{time.Minute, "b", last(day(3, 0), "a"), false},
			{4 * time.Minute, "c", last(day(3, 0), "a"), false},
			{8 * time.Minute, "c", last(day(3, 0), "a"), false},
			{9 * time.Minute, "c", last(day(3, 0), "a"), true},
		},
		"policies change back": {
			{0, "a", last(day(3, 0), "a"), false}, {time.Minute, "b", last(day(3, 0), "a"), false}, {10 * time.Minute, "a", last(day(3, 0), "a"), false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var decided trigger
			for _, at := range checks {
				due, err := decided.isDue(&c, at.last, at.digest, day(12, 0).Add(at.after), day(12, 0).Add(at.after))
				if err != nil || due != at.due {
					t.Errorf("after %s: %t, %v; want %t", at.after, due, err, at.due)
				}
			}
		})
	}
	paused := trigger{pausedUntil: day(12, 30)}
	for minute, want := range map[int]bool{20: false, 30: true} {
		if due, _ := paused.isDue(&c, last(day(-30, 0), "a"), "a", day(12, minute), day(12, minute)); due != want {
			t.Errorf("%d minutes after a failure: %t", minute, due)
		}
	}
}

// Examples are of several projects first, and never more than fit.
func TestExamples(t *testing.T) {
	var entries []audit.Entry
	for _, e := range []string{"a1", "a2", "a3", "a4", "b1", "b2", "c1"} {
		entries = append(entries, audit.Entry{Policy: "p", Result: "Denied", Project: e[:1], Object: audit.Object{Name: e}})
	}
	entries = append(entries, audit.Entry{Policy: "p", Result: "Warned", Project: "d", Object: audit.Object{Name: "d1"}})
	var names []string
	for _, example := range examplesByPolicy(entries)["p"] {
		names = append(names, example.Name)
	}
	if diff := cmp.Diff([]string{"a1", "b1", "c1", "a2", "a3"}, names); diff != "" {
		t.Error(diff)
	}
	counts := &audit.PolicyCounts{ByProject: map[string]int{}}
	for i := range 30 {
		counts.ByProject[string(rune('a'+i%26))+string(rune('a'+i/26))] = 1 + i%3
	}
	figures := newPolicyAudit(1, counts, nil, metav1.Now())
	if len(figures.ViolationsByProject) != 20 || figures.ViolationsByProject[0].Violations != 3 {
		t.Errorf("projects: %+v", figures.ViolationsByProject)
	}
}

// testCluster is a project with pods and a policy in a real API server.
type testCluster struct {
	client.Client
	auditor   *Auditor
	set       *engine.Set
	namespace string
}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	admin := clustertest.Admin(t)
	c := &testCluster{Client: admin, namespace: clustertest.Namespace(t, clustertest.Start(t))}
	c.create(t, &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}})
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}, Spec: v1alpha1.ProjectSpec{
		Department: "students", Owners: []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "Anna", Email: "anna@example.org"}}},
	}}
	c.create(t, project)
	project.Status.Namespace = &v1alpha1.ProjectNamespace{Name: c.namespace, Origin: v1alpha1.NamespaceCreated}
	if err := admin.Status().Update(t.Context(), project); err != nil {
		t.Fatal(err)
	}
	c.create(t, &v1alpha1.AdmissionParameters{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName}})
	policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "pinned"}, Spec: v1alpha1.PolicySpec{
		Rego: "package pinned\ndeny contains {\"msg\": msg, \"field\": \"spec.containers\", \"fix\": \"pin it\"} if {\n\tsome c in input.object.spec.containers\n\tendswith(c.image, \":latest\")\n\tmsg := sprintf(\"image %s is not pinned\", [c.image])\n}",
	}}
	c.create(t, policy)
	for _, name := range []string{"a", "b"} {
		c.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: map[string]string{"a": "x:latest", "b": "x:v1"}[name]}},
		}})
	}
	policies, err := engine.New(engine.Options{Limits: engine.Limits{Evaluation: time.Minute, Request: time.Minute}}) // for a busy machine
	if err != nil {
		t.Fatal(err)
	}
	for _, report := range policies.Update([]engine.Source{engine.FromPolicy(policy)}) {
		for _, problem := range report.Problems {
			t.Fatal(problem)
		}
	}
	if c.set, err = policies.Current(); err != nil {
		t.Fatal(err)
	}
	c.auditor = &Auditor{Client: admin, Live: admin, Policies: policies, Clock: policytime.System()}
	return c
}

func (c *testCluster) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

func (c *testCluster) run(t *testing.T) {
	t.Helper()
	if err := c.auditor.Run(t.Context(), c.set); err != nil {
		t.Fatal(err)
	}
}

func (c *testCluster) policy(t *testing.T) *v1alpha1.Policy {
	t.Helper()
	policy := &v1alpha1.Policy{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "pinned"}, policy); err != nil {
		t.Fatal(err)
	}
	return policy
}

func (c *testCluster) record(t *testing.T) v1alpha1.AuditRecord {
	t.Helper()
	parameters := &v1alpha1.AdmissionParameters{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, parameters); err != nil {
		t.Fatal(err)
	}
	if parameters.Status.Audit == nil {
		return v1alpha1.AuditRecord{}
	}
	return *parameters.Status.Audit
}

func (c *testCluster) report(t *testing.T) (*unstructured.Unstructured, error) {
	t.Helper()
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(audit.OpenReportKind)
	return report, c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: audit.OpenReportName}, report)
}

// installOpenReports creates the kind of OpenReports' own manifest, and waits until it is served.
func (c *testCluster) installOpenReports(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "policies", "audit", "testdata", "openreports.io_reports.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kind := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &kind.Object); err != nil {
		t.Fatal(err)
	}
	kind.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	c.create(t, kind)
	clustertest.Eventually(t, func() error {
		_, err := c.report(t)
		if apierrors.IsNotFound(err) && !isNotServed(err) {
			return nil // it has no Report yet
		}
		return err
	})
}

// The audit writes its figures to the policies, and a Report once the kind of OpenReports is installed. A second audit writes
// nothing but its record, an interrupted one leaves the former record, and the Report goes with the last finding.
func TestAuditOfCluster(t *testing.T) {
	c := newTestCluster(t)
	c.run(t)
	figures := c.policy(t).Status.Audit
	if figures == nil || figures.Violations != 1 || len(figures.Examples) != 1 || figures.Examples[0].Name != "a" ||
		figures.Examples[0].Message != "spec.containers: image x:latest is not pinned" || figures.Generation != 1 {
		t.Fatalf("figures: %+v", figures)
	}
	if record := c.record(t); record.Reports != v1alpha1.AuditReportsStatusOnly || record.Evaluated != 2 || record.Violations != 1 || record.Policies != c.set.Digest() {
		t.Errorf("record: %+v", record)
	}

	c.installOpenReports(t)
	c.run(t)
	report, err := c.report(t)
	if err != nil {
		t.Fatal(err)
	}
	entries, omitted := audit.ParseOpenReport(report)
	if len(entries) != 1 || omitted != 0 || entries[0].Name != "a" || entries[0].Fix != "pin it" || entries[0].UID == "" {
		t.Errorf("the report has %+v", entries)
	}
	// The API server kept every field: the schema of OpenReports has them.
	desired := audit.NewOpenReport(c.namespace, entries, audit.Counts{Denied: 1, Enforced: 1})
	if !isUpToDate(report, desired) {
		t.Errorf("the API server changed the report: %s", cmp.Diff(desired.Object, report.Object))
	}
	if record := c.record(t); record.Reports != v1alpha1.AuditReportsOpenReports {
		t.Errorf("record: %+v", record)
	}

	before := c.policy(t)
	c.run(t)
	again, err := c.report(t)
	if err != nil {
		t.Fatal(err)
	}
	if after := c.policy(t); after.ResourceVersion != before.ResourceVersion || again.GetResourceVersion() != report.GetResourceVersion() {
		t.Error("a second audit with the same findings wrote to the policy or the report")
	}

	// The process ends after the figures and before the record.
	former := c.record(t)
	if err := c.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: c.namespace}}, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the process ends")
	watching, err := client.NewWithWatch(clustertest.Start(t).Config(), client.Options{Scheme: c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	refusing := interceptor.NewClient(watching, interceptor.Funcs{
		SubResourceApply: func(context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
			return broken
		},
	})
	interrupted := &Auditor{Client: refusing, Live: c.auditor.Live, Policies: c.auditor.Policies, Clock: c.auditor.Clock}
	if err := interrupted.Run(t.Context(), c.set); !errors.Is(err, broken) {
		t.Fatalf("interrupted: %v", err)
	}
	if record := c.record(t); !cmp.Equal(record, former) {
		t.Errorf("an interrupted audit changed the record: %+v", record)
	}
	c.run(t)
	if figures := c.policy(t).Status.Audit; figures.Violations != 0 || len(figures.Examples) != 0 {
		t.Errorf("figures without violations: %+v", figures)
	}
	if _, err := c.report(t); !apierrors.IsNotFound(err) {
		t.Errorf("the report of a namespace without findings: %v", err)
	}
}
