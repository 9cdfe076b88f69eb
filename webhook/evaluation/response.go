// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/merge"
)

// The keys of audit annotations; the API server puts the webhook's name before
// them.
const (
	// AuditChangedBy are the policies that changed the object.
	AuditChangedBy = "changed-by"
	// AuditDeniedBy are the policies that refused it.
	AuditDeniedBy = "denied-by"
	// AuditDryRun are the policies in DryRun that would have changed or refused it.
	AuditDryRun = "dry-run"
)

// The most that is told of each kind: a hostile object must not make a long
// answer.
const (
	maxDenials       = 20
	maxWarnings      = 20
	maxMessageLength = 1024
)

// NewResponse is the response to a judgment, but for its patch.
func NewResponse(judged Result) admission.Response {
	response := admission.Allowed("")
	if len(judged.Denials) > 0 {
		response = admission.Denied(strings.Join(formatMessages(judged.Denials, maxDenials), "\n"))
	}
	response.Warnings = formatMessages(judged.Warnings, maxWarnings)
	notes := map[string][]string{
		AuditDeniedBy: policyNames(judged.Denials),
		AuditDryRun:   dryRunPolicyNames(judged.DryRun),
	}
	if response.Allowed {
		notes[AuditChangedBy] = slices.Sorted(maps.Keys(judged.Merged.ChangedPaths))
	}
	for key, names := range notes {
		if len(names) == 0 {
			continue
		}
		if response.AuditAnnotations == nil {
			response.AuditAnnotations = make(map[string]string)
		}
		response.AuditAnnotations[key] = strings.Join(names, ",")
	}
	return response
}

// ErrorResponse is the response where nothing could be judged: nobody is let in then.
func ErrorResponse(err error) admission.Response {
	if errors.Is(err, engine.ErrNotLoaded) {
		return admission.Errored(http.StatusServiceUnavailable, fmt.Errorf("%w: try again in a moment", err))
	}
	return admission.Errored(http.StatusInternalServerError, err)
}

func formatMessages(complaints []merge.Finding, most int) []string {
	var lines []string
	for i, complaint := range complaints {
		if i == most {
			lines = append(lines, fmt.Sprintf("and %d more", len(complaints)-most))
			break
		}
		lines = append(lines, truncate(FormatMessage(complaint)))
	}
	return lines
}

// truncate keeps a line short, and one line.
func truncate(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxMessageLength {
		text = strings.ToValidUTF8(text[:maxMessageLength], "") + "..."
	}
	return text
}

// policyNames are the names of those who complain, sorted, each once.
func policyNames(complaints []merge.Finding) []string {
	var names []string
	for _, complaint := range complaints {
		if complaint.Policy != "" {
			names = append(names, complaint.Policy)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func dryRunPolicyNames(trial engine.DryRunOutcome) []string {
	names := policyNames(slices.Concat(trial.Denials, trial.Warnings))
	for _, wanted := range trial.Changes {
		names = append(names, wanted.Policy)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// denialsForMergeError says of an error of the merge whose fault it is.
func denialsForMergeError(err error) []merge.Finding {
	var (
		conflict *merge.ConflictError
		object   *merge.InvalidObjectError
	)
	if errors.As(err, &object) {
		return []merge.Finding{{Message: object.Message, Field: object.Path}}
	}
	complaint := merge.Finding{Message: err.Error(), Fix: "tell the cluster's administrators: until the policies are mended, such pods are refused"}
	if errors.As(err, &conflict) {
		complaint.Message = conflict.Error()
	}
	return []merge.Finding{complaint}
}

// denialsForMalformed are what is wrong with what a pod asks for, one for each field.
func denialsForMalformed(malformed workload.InvalidRequest) []merge.Finding {
	complaints := make([]merge.Finding, 0, len(malformed))
	for _, fault := range malformed {
		complaints = append(complaints, merge.Finding{Message: fault.ErrorBody(), Field: fault.Field})
	}
	return complaints
}

// FormatMessage is a complaint as people read it: the policy, the field, what is
// wrong, and what to do.
func FormatMessage(c merge.Finding) string {
	text := c.Message
	if c.Field != "" {
		text = fmt.Sprintf("%s: %s", c.Field, text)
	}
	if c.Fix != "" {
		text = fmt.Sprintf("%s; %s", text, c.Fix)
	}
	if c.Policy != "" {
		text = fmt.Sprintf("%s (policy %s)", text, c.Policy)
	}
	return text
}
