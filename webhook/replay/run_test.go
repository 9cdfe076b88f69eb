// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replay_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"sluice.dev/policies/engine"
	"sluice.dev/webhook/decisionlog"
	"sluice.dev/webhook/replay"
)

// allowsAll is a policy that never refuses.
var allowsAll = newPolicy("allows", `warn contains "a" if input.object.spec.hostNetwork`)

// A decision whose parts are not recorded as a whole is never repeated.
func TestIncompleteRecordsAreNotReplayed(t *testing.T) {
	record := func(change func(*decisionlog.Record), mask ...string) *decisionlog.Record {
		r := newRecording(t, decisionlog.Options{Objects: true, Mask: mask}, allowsAll)
		r.answer(t, "pods", secretObject(t, "pods"))
		recorded := r.records(t)[0]
		change(recorded)
		return recorded
	}
	replayer, err := replay.New([]engine.Source{allowsAll}, nil)
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(*decisionlog.Record) {}
	for name, tc := range map[string]struct {
		record *decisionlog.Record
		want   string // the reason; empty if it is the same
	}{
		"whole":                       {record(nothing), ""},
		"no object":                   {record(func(r *decisionlog.Record) { r.Input = nil }), "its object was not recorded"},
		"no decision":                 {record(func(r *decisionlog.Record) { r.Allowed, r.Code = false, 503 }), "it was not decided: HTTP status 503"},
		"a workload without decision": {record(func(r *decisionlog.Record) { r.Message = "evaluate policies: too late" }), "it was not decided: evaluate policies"},
		"a label is masked":           {record(nothing, "/**/labels", "/**/image"), "/object/spec/containers/*/image is masked, and Sluice itself reads it"},
		"an annotation of Sluice":     {record(nothing, "/**/annotations"), "sluice.dev~1gpu is masked, and Sluice itself reads it"},
		"the user":                    {record(nothing, "/request/userInfo/username"), "/request/userInfo/username is masked, and Sluice itself reads it"},
		"the name of a variable":      {record(nothing, "/**/env/*/name"), "/env/*/name is masked"},
		"no time":                     {record(func(r *decisionlog.Record) { *r = decisionlog.Record{Input: r.Input, Allowed: true, Webhook: "pods"} }), "policyTime is required"},
		"no tenant":                   {record(func(r *decisionlog.Record) { r.Input.Tenant = nil }), "object and tenant are required"},
		"an unknown time zone":        {record(func(r *decisionlog.Record) { r.Input.Tenant.TimeZone = "Mars/Base" }), "timeZone"},
		"node pools of another type":  {record(func(r *decisionlog.Record) { r.Input.Tenant.Input["nodePools"] = json.RawMessage(`{"a": 1}`) }), "input.nodePools"},
		"no project document":         {record(func(r *decisionlog.Record) { delete(r.Input.Tenant.Input, "project") }), "input.project"},
		"an object of another type":   {record(func(r *decisionlog.Record) { r.Input.Object = json.RawMessage(`[1]`) }), "not a JSON object"},
		"a request of another type":   {record(func(r *decisionlog.Record) { r.Input.Request = json.RawMessage(`{"uid": 1}`) }), "request: "},
		"a place that does not exist": {record(func(r *decisionlog.Record) { r.Masked = []string{"", "/object/spec/containers/9/env/x/value"} }), "is masked"},
		"too large, then masked": {record(func(r *decisionlog.Record) {
			r.Allowed, r.Code, r.Evaluations, r.Message = false, 403, nil, "spec.containers[0].args[0]: 2097152 bytes"
		}, "/**/args"), "it was refused before any policy"},
	} {
		t.Run(name, func(t *testing.T) {
			result := replayer.Replay(t.Context(), tc.record)
			if tc.want == "" {
				if result.Outcome != replay.Same {
					t.Errorf("%+v", result)
				}
				return
			}
			if result.Outcome != replay.NotReplayed || !strings.Contains(result.Reason, tc.want) {
				t.Errorf("%s: %q, want %q", result.Outcome, result.Reason, tc.want)
			}
		})
	}
}

// A log of many records and other lines gives the same summary each time, with the first examples in order.
func TestRun(t *testing.T) {
	team := newPolicy("team", `defaults.metadata.labels.team := "vision"`)
	r := newRecording(t, decisionlog.Options{Objects: true, Mask: decisionlog.DefaultMask, Unmasked: decisionlog.DefaultUnmasked}, team)
	const pods = 200
	for i := range pods {
		_, after := r.answer(t, "pods", benchmarkPod(t, i, true))
		r.answer(t, "pods", after) // as the API server does if another webhook changed it
		r.answer(t, replay.FinalPods, after)
	}
	r.records(t)
	replayer, err := replay.New([]engine.Source{team, newPolicy("seven", `deny contains c.image if { some c in input.object.spec.containers; endswith(c.image, "7") }`)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := "a line of another program\n" + r.log.String() + `{"kind":"DecisionRecord","version":99}` + "\n" + r.log.String()[:1000]
	log := replay.Log{Name: "log", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	var first []byte
	for range 2 {
		summary, err := replayer.Run(t.Context(), []replay.Log{log, log}, replay.Options{Examples: 2, Project: "thesis"})
		if err != nil {
			t.Fatal(err)
		}
		if summary.Decisions != 2*pods || summary.NowDenied != 2*pods/10 || summary.Same != 2*pods*9/10 || !summary.Differs() {
			t.Errorf("%+v", summary)
		}
		if want := (decisionlog.Skipped{Other: 2, Newer: 2, Incomplete: 2}); summary.Skipped != want {
			t.Errorf("skipped %+v, want %+v", summary.Skipped, want)
		}
		if len(summary.Examples) != 2 || summary.Examples[0].Name != "train-7-*" || summary.Examples[1].Name != "train-17-*" ||
			!strings.Contains(summary.Examples[0].Now, "registry.example.org/team/main:v7") {
			t.Errorf("examples %+v", summary.Examples)
		}
		encoded := marshal(t, summary)
		if first == nil {
			first = encoded
		}
		if string(first) != string(encoded) {
			t.Errorf("the summaries differ:\n%s\n%s", first, encoded)
		}
	}
	failing := replay.Log{Name: "broken", Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader(r.log.String()), failingReader{})), nil
	}}
	summary, err := replayer.Run(t.Context(), []replay.Log{failing, log}, replay.Options{})
	if err != nil || len(summary.Problems) != 1 || summary.Problems[0] != "broken: read: the disk is broken" || summary.Decisions != 2*pods {
		t.Errorf("%+v, %v", summary, err)
	}
	missing := replay.Log{Name: "missing", Open: func() (io.ReadCloser, error) { return nil, errBroken }}
	if _, err := replayer.Run(t.Context(), []replay.Log{log, missing}, replay.Options{}); !errors.Is(err, errBroken) {
		t.Errorf("a log that cannot be opened: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	options := replay.Options{Progress: func(int) { cancel() }}
	if _, err := replayer.Run(ctx, []replay.Log{log, log, log}, options); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled replay: %v", err)
	}
}

var errBroken = errors.New("the disk is broken")

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errBroken }

// No record makes the replay fail, whatever it has.
func FuzzReplay(f *testing.F) {
	r := newRecording(f, decisionlog.Options{Objects: true, Mask: decisionlog.DefaultMask}, allowsAll)
	r.answer(f, "pods", benchmarkPod(f, 1, true))
	r.answer(f, "templates", []byte(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}`))
	r.records(f)
	for line := range strings.Lines(r.log.String()) {
		f.Add([]byte(line))
	}
	replayer, err := replay.New([]engine.Source{allowsAll}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		record, err := decisionlog.Parse(line)
		if err != nil || !replayer.IsDecision(record) {
			return
		}
		result := replayer.Replay(t.Context(), record)
		if result.Outcome == "" || result.Outcome == replay.NotReplayed && result.Reason == "" {
			t.Errorf("%+v", result)
		}
	})
}
