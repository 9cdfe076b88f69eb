// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"sluice.dev/policies/engine"
)

// The example of the documentation reads the hour and the weekday in the department's time zone, for a template only
// as a warning, and for each pod anew.
func TestDocumentedExampleReadsTimeOfDay(t *testing.T) {
	text, err := os.ReadFile("../../docs/platform/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "```rego\ndeny contains \"interactive pods")
	example, _, found := strings.Cut("deny contains \"interactive pods"+example, "```")
	if !found {
		t.Fatal("the documentation has no such example")
	}
	e := newEngine(t, engine.Source{Name: "hours", Rego: "package hours\n\n" + example})
	for at, refused := range map[string]bool{
		"2026-10-15T05:59:59Z":      true,  // 7:59 in Berlin
		"2026-10-15T06:00:00Z":      false, // 8:00
		"2026-10-15T19:59:59+02:00": false,
		"2026-10-15T20:00:00+02:00": true,
		"2026-12-15T06:30:00Z":      true, // 7:30 in winter
		"2026-10-17T12:00:00+02:00": true, // Saturday
		"2026-10-18T23:00:00Z":      true, // Monday, 1:00
	} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		in := podInput(t, `{"kind": "Pod", "metadata": {"name": "a"}}`)
		in.Now, in.Department = now, decodeDocument(t, `{"name": "students", "timeZone": "Europe/Berlin"}`)
		for _, template := range []bool{false, true} {
			in.Template = template
			outcome, err := e.Evaluate(t.Context(), in)
			if err != nil || len(outcome.Failures) > 0 {
				t.Fatal(err, outcome.Failures)
			}
			denials, warnings := len(outcome.Denials), len(outcome.Warnings)
			if template {
				denials, warnings = warnings, denials
			}
			if (denials == 1) != refused || warnings != 0 {
				t.Errorf("%s, template %v: denials %v, warnings %v", at, template, outcome.Denials, outcome.Warnings)
			}
			if outcome.Evaluations[0].Cached {
				t.Errorf("%s: cached", at)
			}
		}
	}
}
