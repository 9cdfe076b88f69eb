// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
	"sluice.dev/webhook/decisionlog"
)

// compare sets the outcome, and the policies for which the decisions differ.
func (r *Result) compare(before *decisionlog.Record) {
	now := &r.Now
	switch {
	case before.Allowed && !now.Allowed:
		r.Outcome, r.Policies = NowDenied, now.DeniedBy
	case !before.Allowed && now.Allowed:
		if len(before.Evaluations) == 0 && len(before.Masked) > 0 {
			r.Outcome, r.Reason = NotReplayed, "it was refused before any policy, and texts of its object are masked"
			return
		}
		r.Outcome, r.Policies = NowAllowed, before.DeniedBy
	case matchesRedacted(before.Message, now.Message) && slices.EqualFunc(before.Warnings, now.Warnings, matchesRedacted) &&
		equalPatches(before.Patch, r.Response.Patch):
		r.Outcome = Same
	case hasMarker(before):
		r.Outcome, r.Reason = NotReplayed, "a policy's change of the object has masked texts"
	default:
		r.Outcome, r.Policies = Changed, differing(before, now)
	}
}

// equalPatches reports whether two JSON patches are the same, whatever the order of keys and the stamp, which names the policies.
func equalPatches(a, b []byte) bool {
	if bytes.Equal(a, b) || len(a) == 0 || len(b) == 0 {
		return len(a) == 0 == (len(b) == 0)
	}
	const stampPath = "/metadata/annotations/sluice.dev~1evaluated-under"
	normalize := func(patch []byte) []byte {
		decoder := json.NewDecoder(bytes.NewReader(patch))
		decoder.UseNumber()
		var operations []map[string]any
		if decoder.Decode(&operations) != nil {
			return patch
		}
		operations = slices.DeleteFunc(operations, func(o map[string]any) bool { return o["path"] == stampPath })
		for _, operation := range operations {
			if value, ok := operation["value"].(map[string]any); ok { // of all annotations
				delete(value, v1alpha1.AnnotationEvaluatedUnder)
			}
		}
		encoded, err := json.Marshal(operations)
		if err != nil {
			return patch
		}
		return encoded
	}
	return bytes.Equal(normalize(a), normalize(b))
}

// matchesRedacted reports whether a text equals a recorded one, in which [decision.Redacted] stands for any text.
func matchesRedacted(recorded, now string) bool {
	if recorded == now {
		return true
	}
	parts := strings.Split(recorded, decision.Redacted)
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 || !strings.HasPrefix(now, first) {
		return false
	}
	now = now[len(first):]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(now, part)
		if at < 0 {
			return false
		}
		now = now[at+len(part):]
	}
	return strings.HasSuffix(now, last)
}

// hasMarker reports whether the recorded patch has a masked text.
func hasMarker(record *decisionlog.Record) bool {
	return len(record.Masked) > 0 && bytes.Contains(record.Patch, []byte(decisionlog.MarkerPrefix))
}

// differing returns the sorted names of the policies that changed other paths, or have another result.
func differing(before, now *decisionlog.Record) []string {
	describe := func(record *decisionlog.Record) map[string]string {
		described := make(map[string]string)
		for _, e := range record.Evaluations {
			described[e.Policy] += e.Template + " " + e.Result + "\n"
		}
		for policy, paths := range record.Changed {
			described[policy] += strings.Join(paths, "\n")
		}
		return described
	}
	old, present := describe(before), describe(now)
	names := slices.Concat(slices.Collect(maps.Keys(old)), slices.Collect(maps.Keys(present)))
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(policy string) bool { return old[policy] == present[policy] })
}
