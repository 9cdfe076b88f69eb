// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/audit"
)

// auditObjects are two projects, pods, and a policy that refuses images of the tag latest.
func auditObjects() []client.Object {
	objects := []client.Object{
		&v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}},
		&v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "pinned"}, Spec: v1alpha1.PolicySpec{
			Enforcement: v1alpha1.EnforcementDeny,
			Rego:        "package pinned\ndeny contains {\"msg\": \"not \\u001b[31mpinned\", \"fix\": \"pin it\"} if endswith(input.object.spec.containers[_].image, \":latest\")\n",
		}},
	}
	for _, name := range []string{"course", "thesis"} {
		objects = append(objects, &v1alpha1.Project{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProjectSpec{Department: "students"},
			Status: v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: name + "-ns"}},
		}, &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: name + "-ns", Name: "old", Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "anna"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x:latest"}}},
		})
	}
	return objects
}

// runAudit evaluates the objects of a fake cluster, and returns the output of the command.
func runAudit(t *testing.T, format string, flags *auditFlags) (string, error) {
	t.Helper()
	c := &clusterClient{Client: newFakeClient(t, interceptor.Funcs{}, auditObjects()...), clock: policytime.System()}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	var output bytes.Buffer
	cmd.SetOut(&output)
	cmd.SetErr(&output)
	flags.output = &outputFlag{format: format}
	document, err := auditNow(cmd, c, flags)
	if err != nil {
		return output.String(), err
	}
	document.Time = metav1.NewTime(projectsNow)
	err = document.print(cmd, flags)
	return output.String(), err
}

// The table has the violations of all projects, or of one, as text without control characters; --fail counts what is refused.
func TestPolicyAudit(t *testing.T) {
	all, err := runAudit(t, tableFormat, &auditFlags{fail: true})
	if err == nil || !strings.HasPrefix(err.Error(), "violations of policies in Deny: ") {
		t.Errorf("--fail: %v", err)
	}
	golden.Assert(t, all, "policy-audit.txt")
	one, err := runAudit(t, wideFormat, &auditFlags{project: "course"})
	if err != nil || strings.Contains(one, "thesis") || !strings.Contains(one, "pin it") {
		t.Errorf("%v\n%s", err, one)
	}
	if _, err := runAudit(t, tableFormat, &auditFlags{project: "none"}); err == nil || !strings.Contains(err.Error(), `there is no project "none"`) {
		t.Errorf("an unknown project: %v", err)
	}
}

// The policies of a directory are evaluated beside those of the cluster, also in DryRun, and only their findings are shown.
func TestPolicyAuditOfDirectory(t *testing.T) {
	directory := t.TempDir()
	const text = `apiVersion: sluice.dev/v1alpha1
kind: Policy
metadata: {name: named}
spec:
  enforcement: DryRun
  rego: |
    package named
    deny contains "choose another name" if input.object.metadata.name == "old"
`
	if err := os.WriteFile(filepath.Join(directory, "named.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := runAudit(t, jsonFormat, &auditFlags{directory: directory, fail: true})
	if err == nil || !strings.Contains(err.Error(), "violations of policies in Deny: 2") {
		t.Errorf("--fail: %v", err)
	}
	golden.Assert(t, output, "policy-audit-directory.json")
}

// --latest prints the Reports of the last audit; without their kind, the examples in the status of the policies.
func TestPolicyAuditLatest(t *testing.T) {
	report := audit.NewOpenReport("thesis-ns", []audit.Entry{{
		Policy: "pinned", Enforcement: "Deny", Result: "Denied", Project: "thesis", Message: "not pinned", Fix: "pin it", Pods: 3,
		Object: audit.Object{Namespace: "thesis-ns", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
	}}, audit.Counts{Denied: 4, Enforced: 4})
	for place, served := range map[v1alpha1.AuditReports]bool{v1alpha1.AuditReportsOpenReports: true, v1alpha1.AuditReportsStatusOnly: false} {
		t.Run(string(place), func(t *testing.T) {
			policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "pinned"}, Spec: v1alpha1.PolicySpec{Enforcement: v1alpha1.EnforcementDeny}}
			policy.Status.Audit = &v1alpha1.PolicyAudit{
				Violations:          4,
				ViolationsByProject: []v1alpha1.ProjectViolations{{Project: "thesis", Violations: 3}, {Project: "course", Violations: 1}},
				Examples:            []v1alpha1.AuditExample{{Project: "thesis", Kind: "Deployment", Namespace: "thesis-ns", Name: "web", Result: "Denied", Pods: 3, Message: "not pinned"}},
			}
			parameters := &v1alpha1.AdmissionParameters{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName}}
			parameters.Status.Audit = &v1alpha1.AuditRecord{Time: metav1.NewTime(projectsNow), Evaluated: 20, Violations: 4, Reports: v1alpha1.AuditReportsOpenReports}
			project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}}
			project.Status.Namespace = &v1alpha1.ProjectNamespace{Name: "thesis-ns"}
			c := newFakeClient(t, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					reports, ok := list.(*unstructured.UnstructuredList)
					if !ok {
						return c.List(ctx, list, options...)
					}
					if !served {
						return &meta.NoKindMatchError{GroupKind: audit.OpenReportKind.GroupKind()}
					}
					reports.Items = []unstructured.Unstructured{*report}
					return nil
				},
			}, policy, parameters, project)
			for _, name := range []string{"", "thesis"} {
				document, err := latestAudit(t.Context(), c, name)
				if err != nil {
					t.Fatal(err)
				}
				if document.Source != string(place) || len(document.Entries) != 1 || document.Entries[0].Pods != 3 {
					t.Errorf("project %q: %+v", name, document)
				}
				if want := map[bool]int{true: 3, false: map[string]int{"": 3, "thesis": 2}[name]}[served]; document.Omitted != want {
					t.Errorf("project %q: %d omitted, want %d", name, document.Omitted, want)
				}
				if name == "" {
					golden.Assert(t, tableText(t, auditTable(document.Entries))+document.summary(), "policy-audit-latest-"+string(place)+".txt")
				}
			}
		})
	}
	if _, err := latestAudit(t.Context(), newFakeClient(t, interceptor.Funcs{}, &v1alpha1.AdmissionParameters{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName},
	}), ""); err == nil || !strings.Contains(err.Error(), "no audit has finished yet") {
		t.Errorf("before the first audit: %v", err)
	}
}
