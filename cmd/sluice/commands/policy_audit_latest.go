// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/audit"
	"sluice.dev/policies/decision"
)

// latestAudit returns what the last audit of the cluster wrote: the Reports of OpenReports, or the examples in the status of the
// policies if there are no Reports. An empty project means all.
func latestAudit(ctx context.Context, c client.Client, project string) (*auditDocument, error) {
	var parameters v1alpha1.AdmissionParameters
	if err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, &parameters); err != nil {
		return nil, err
	}
	record := parameters.Status.Audit
	if record == nil {
		return nil, errors.New("no audit has finished yet: it starts a few minutes after a change of the policies; " +
			"see audit in the configuration of lifecycle, or run sluice policy audit without --latest")
	}
	document := &auditDocument{
		Time: record.Time, Source: string(record.Reports), ofCluster: true,
		Evaluated: int(record.Evaluated), Unevaluated: int(record.Unevaluated),
	}
	var err error
	if record.Reports == v1alpha1.AuditReportsOpenReports {
		err = document.addReports(ctx, c, project)
	}
	if record.Reports != v1alpha1.AuditReportsOpenReports || meta.IsNoMatchError(err) {
		document.Source = string(v1alpha1.AuditReportsStatusOnly)
		err = document.addExamples(ctx, c, project)
	}
	return document, err
}

// latestPageSize is the number of Reports of a page: each has up to 1 MiB.
const latestPageSize = 10

// addReports adds the entries of the Reports.
func (d *auditDocument) addReports(ctx context.Context, c client.Client, project string) error {
	namespace := ""
	if project != "" {
		var found v1alpha1.Project
		if err := c.Get(ctx, client.ObjectKey{Name: project}, &found); err != nil {
			return err
		}
		var err error
		if namespace, err = auditNamespace([]v1alpha1.Project{found}, project); err != nil {
			return err
		}
	}
	d.Counts = &audit.Counts{}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(audit.OpenReportKind.GroupVersion().WithKind(audit.OpenReportKind.Kind + "List"))
	for {
		err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels(audit.OpenReportLabels()),
			client.Limit(latestPageSize), client.Continue(list.GetContinue()))
		if err != nil {
			return fmt.Errorf("list reports: %w", err)
		}
		for i := range list.Items {
			report := &list.Items[i]
			if report.GetName() != audit.OpenReportName {
				continue
			}
			entries, omitted := audit.ParseOpenReport(report)
			for j := range entries {
				d.Counts.Add(entries[j].Result, entries[j].Enforcement)
			}
			d.Omitted += omitted
			d.Entries = append(d.Entries, entries...)
		}
		if list.GetContinue() == "" {
			return nil
		}
	}
}

// addExamples adds the examples in the status of the policies. The status has no warnings.
func (d *auditDocument) addExamples(ctx context.Context, c client.Reader, project string) error {
	var policies v1alpha1.PolicyList
	if err := c.List(ctx, &policies); err != nil {
		return err
	}
	d.Counts, d.Entries, d.Omitted = nil, nil, 0
	for i := range policies.Items {
		policy := &policies.Items[i]
		figures := policy.Status.Audit
		if figures == nil {
			continue
		}
		violations := int(figures.Violations)
		if project != "" {
			violations = 0
			for _, of := range figures.ViolationsByProject {
				if of.Project == project {
					violations = int(of.Violations)
				}
			}
		}
		shown := 0
		for _, example := range figures.Examples {
			if project != "" && example.Project != project {
				continue
			}
			shown++
			d.Entries = append(d.Entries, audit.Entry{
				Policy: policy.Name, Enforcement: policy.Spec.Enforcement, Result: decision.AuditResult(example.Result), Project: example.Project,
				Object:  audit.Object{Namespace: example.Namespace, Kind: example.Kind, Name: example.Name},
				Pods:    int(example.Pods),
				Message: example.Message,
			})
		}
		d.Omitted += max(0, violations-shown)
	}
	slices.SortStableFunc(d.Entries, func(a, b audit.Entry) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Policy, b.Policy))
	})
	return nil
}
