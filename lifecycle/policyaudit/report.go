// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policyaudit

import (
	"encoding/json"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/audit"
	"sluice.dev/policies/decision"
)

// reportKind is the Report of OpenReports, https://github.com/openreports/reports-api.
var reportKind = schema.GroupVersionKind{Group: "openreports.io", Version: "v1alpha1", Kind: "Report"}

const (
	// reportName is the name of the Report in each namespace.
	reportName = "sluice"
	// maxReportBytes limits the results of a Report: the API server accepts 1.5 MiB.
	maxReportBytes = 1 << 20
	// category is that of all results, for programs that show those of several sources.
	category = "Sluice admission"
)

// The results of OpenReports.
const (
	resultFail  = "fail"
	resultWarn  = "warn"
	resultError = "error"
)

// newReport returns the Report of a namespace. Its results have no times, so that equal findings are an equal Report.
func newReport(namespace string, entries []audit.Entry, counts audit.Counts) *unstructured.Unstructured {
	results, size := make([]any, 0, len(entries)), 0
	for i := range entries {
		result := newResult(&entries[i])
		encoded, err := json.Marshal(result)
		if size += len(encoded); err != nil || size > maxReportBytes {
			break
		}
		results = append(results, result)
	}
	report := &unstructured.Unstructured{Object: map[string]any{
		"source": v1alpha1.ManagedBySluice,
		"scope":  map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": namespace},
		"configuration": map[string]any{
			"limits": map[string]any{"maxResults": int64(audit.DefaultLimits.Namespace)},
		},
		"summary": map[string]any{
			"pass": int64(0), "skip": int64(0), "fail": int64(counts.Enforced), "error": int64(counts.Failed),
			"warn": int64(counts.Violations() - counts.Enforced + counts.Warned),
		},
		"results": results,
	}}
	report.SetGroupVersionKind(reportKind)
	report.SetNamespace(namespace)
	report.SetName(reportName)
	report.SetLabels(reportLabels())
	if omitted := counts.Violations() + counts.Warned + counts.Failed - len(results); omitted > 0 {
		report.SetAnnotations(map[string]string{v1alpha1.OmittedResultsAnnotation: strconv.Itoa(omitted)})
	}
	return report
}

// reportLabels returns the labels of every Report that lifecycle wrote.
func reportLabels() map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}
}

// newResult returns the result of a finding. A policy in Warn or DryRun is not scored.
func newResult(entry *audit.Entry) map[string]any {
	enforced := entry.Enforcement == v1alpha1.EnforcementDeny
	outcome := resultWarn
	switch {
	case entry.Result == decision.AuditFailed:
		outcome = resultError
	case entry.Result.IsViolation() && enforced:
		outcome = resultFail
	}
	properties := map[string]any{
		"enforcement": string(entry.Enforcement), "result": string(entry.Result), "project": entry.Project,
	}
	for name, value := range map[string]string{"fix": entry.Fix, "changes": strings.Join(entry.Changes, ", ")} {
		if value != "" {
			properties[name] = value
		}
	}
	for name, number := range map[string]int{"pods": entry.Pods, "more": entry.More} {
		if number > 0 {
			properties[name] = strconv.Itoa(number)
		}
	}
	subject := map[string]any{"apiVersion": entry.APIVersion, "kind": entry.Kind, "namespace": entry.Namespace, "name": entry.Name}
	if entry.UID != "" {
		subject["uid"] = string(entry.UID)
	}
	return map[string]any{
		"source": v1alpha1.ManagedBySluice, "policy": entry.Policy, "category": category, "result": outcome,
		"scored": outcome == resultFail, "message": entry.Message,
		"resources": []any{subject}, "properties": properties,
	}
}
