// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies/engine"
	"sluice.dev/policies/intent"
	"sluice.dev/webhook/judge"
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
	maxDenials  = 20
	maxWarnings = 20
	maxText     = 1024
)

// Of is the response to a judgement, but for its patch.
func Of(judged judge.Judgement) admission.Response {
	response := admission.Allowed("")
	if len(judged.Denials) > 0 {
		response = admission.Denied(strings.Join(sentences(judged.Denials, maxDenials), "\n"))
	}
	response.Warnings = sentences(judged.Warnings, maxWarnings)
	notes := map[string][]string{
		AuditDeniedBy: policies(judged.Denials),
		AuditDryRun:   tried(judged.Trial),
	}
	if response.Allowed {
		notes[AuditChangedBy] = slices.Sorted(maps.Keys(judged.Result.Changes))
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

// Failed is the response where nothing could be judged: nobody is let in then.
func Failed(err error) admission.Response {
	if errors.Is(err, engine.ErrNotLoaded) {
		return admission.Errored(http.StatusServiceUnavailable, fmt.Errorf("%w: try again in a moment", err))
	}
	return admission.Errored(http.StatusInternalServerError, err)
}

func sentences(complaints []intent.Complaint, most int) []string {
	var lines []string
	for i, complaint := range complaints {
		if i == most {
			lines = append(lines, fmt.Sprintf("and %d more", len(complaints)-most))
			break
		}
		lines = append(lines, cut(judge.Sentence(complaint)))
	}
	return lines
}

// cut keeps a line short, and one line.
func cut(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return text
}

// policies are the names of those who complain, sorted, each once.
func policies(complaints []intent.Complaint) []string {
	var names []string
	for _, complaint := range complaints {
		if complaint.Policy != "" {
			names = append(names, complaint.Policy)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func tried(trial engine.Trial) []string {
	names := policies(slices.Concat(trial.Denials, trial.Warnings))
	for _, wanted := range trial.Intents {
		names = append(names, wanted.Policy)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
