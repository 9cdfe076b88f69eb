// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
)

// OpenReportKind is the Report of OpenReports, https://github.com/openreports/reports-api.
var OpenReportKind = schema.GroupVersionKind{Group: "openreports.io", Version: "v1alpha1", Kind: "Report"}

const (
	// OpenReportName is the name of the Report in each namespace.
	OpenReportName = "sluice"
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

// NewOpenReport returns the Report of a namespace. Its results have no times, so that equal findings are an equal Report.
func NewOpenReport(namespace string, entries []Entry, counts Counts) *unstructured.Unstructured {
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
			"limits": map[string]any{"maxResults": int64(DefaultLimits.Namespace)},
		},
		"summary": map[string]any{
			"pass": int64(0), "skip": int64(0), "fail": int64(counts.Enforced), "error": int64(counts.Failed),
			"warn": int64(counts.Violations() - counts.Enforced + counts.Warned),
		},
		"results": results,
	}}
	report.SetGroupVersionKind(OpenReportKind)
	report.SetNamespace(namespace)
	report.SetName(OpenReportName)
	report.SetLabels(OpenReportLabels())
	if omitted := counts.Violations() + counts.Warned + counts.Failed - len(results); omitted > 0 {
		report.SetAnnotations(map[string]string{v1alpha1.OmittedResultsAnnotation: strconv.Itoa(omitted)})
	}
	return report
}

// OpenReportLabels returns the labels of every Report that lifecycle wrote.
func OpenReportLabels() map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}
}

// newResult returns the result of a finding; [ParseOpenReport] reads it. A policy in Warn or DryRun is not scored.
func newResult(entry *Entry) map[string]any {
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

// ParseOpenReport returns the entries of a Report that [NewOpenReport] returned, and the number of entries that it omits. It skips
// results of other programs: users of a namespace may be allowed to write its Reports.
func ParseOpenReport(report *unstructured.Unstructured) (entries []Entry, omitted int) {
	results, _ := report.Object["results"].([]any)
	for _, element := range results {
		result, _ := element.(map[string]any)
		properties, _ := result["properties"].(map[string]any)
		resources, _ := result["resources"].([]any)
		if result["source"] != v1alpha1.ManagedBySluice || len(resources) != 1 {
			continue
		}
		subject, _ := resources[0].(map[string]any)
		entry := Entry{
			Policy: text(result, "policy"), Message: text(result, "message"),
			Enforcement: v1alpha1.Enforcement(text(properties, "enforcement")), Result: decision.AuditResult(text(properties, "result")),
			Project: text(properties, "project"), Fix: text(properties, "fix"),
			Object: Object{
				Namespace: report.GetNamespace(), APIVersion: text(subject, "apiVersion"), Kind: text(subject, "kind"),
				Name: text(subject, "name"), UID: types.UID(text(subject, "uid")),
			},
		}
		if changes := text(properties, "changes"); changes != "" {
			entry.Changes = strings.Split(changes, ", ")
		}
		entry.Pods, entry.More = number(text(properties, "pods")), number(text(properties, "more"))
		entries = append(entries, entry)
	}
	return entries, number(report.GetAnnotations()[v1alpha1.OmittedResultsAnnotation])
}

// text returns a string of an object; empty if it has none.
func text(object map[string]any, field string) string {
	value, _ := object[field].(string)
	return value
}

// number returns a number from 0 on; 0 if the text is none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return max(n, 0)
}
