// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/policytime"
	"sluice.dev/policies"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/workbench"
	"sluice.dev/webhook/decisionlog"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// sampleTenants is the example project, which owns every namespace.
type sampleTenants struct{ tenant *decision.Tenant }

func (s sampleTenants) Resolve(context.Context, string) (*decision.Tenant, error) {
	return s.tenant, nil
}

func (s sampleTenants) ResolveForPod(context.Context, *admission.Request) (*decision.Tenant, error) {
	return s.tenant, nil
}

// writeDecisions writes the log of a webhook with the built-in policies and the default masks, beside a line of another program, and
// returns its name. One pod has the image of a version, one the image latest, one was refused, and one has no record of its object.
func writeDecisions(t *testing.T) string {
	t.Helper()
	at := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	tenant, namespace, err := new(workbench.Folder).Tenant("", at)
	if err != nil {
		t.Fatal(err)
	}
	policyEngine, err := engine.New(engine.Options{Libraries: policies.Libraries(), Limits: engine.Limits{Evaluation: time.Minute, Request: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	policyEngine.Update(policies.BuiltIn())
	var recorded bytes.Buffer
	log, err := decisionlog.New(decisionlog.Options{
		Output: &recorded, Objects: true, Mask: decisionlog.DefaultMask, Unmasked: decisionlog.DefaultUnmasked,
	})
	if err != nil {
		t.Fatal(err)
	}
	mutator := &pod.Mutator{Base: evaluation.Base{
		Evaluator: &evaluation.Evaluator{Engine: policyEngine, Clock: policytime.System()}, Tenants: sampleTenants{tenant},
	}}
	handler := evaluation.NewRecorder("pods", log, mutator)
	for name, spec := range map[string]string{
		"versioned": `"image": "registry.example.org/a:1", "env": [{"name": "TOKEN", "value": "secret"}]`,
		"latest":    `"image": "docker.io/a:latest"`,
		"refused":   `"image": "registry.example.org/a:1", "resources": {"limits": {"nvidia.com/gpu": "9"}}`,
		"unknown":   `"image": "registry.example.org/a:2"`,
	} {
		var request admission.Request
		request.UID, request.Operation, request.Namespace = types.UID(name), admissionv1.Create, namespace
		request.Kind.Version, request.Kind.Kind, request.UserInfo.Username = "v1", "Pod", "anna"
		request.Object.Raw = []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "` + name + `"}, "spec": {"containers": [{"name": "main", ` + spec + `}]}}`)
		handler.Handle(t.Context(), request)
	}
	log.Close()
	byName := map[string]*decisionlog.Record{}
	for line := range bytes.Lines(recorded.Bytes()) {
		record, err := decisionlog.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		byName[record.Name] = record
	}
	byName["unknown"].Input = nil
	text := []byte(`{"level":"INFO","msg":"Starting webhook"}` + "\n")
	for i, name := range []string{"versioned", "latest", "refused", "unknown"} {
		byName[name].Time = at.Add(time.Duration(i) * time.Second)
		line, err := json.Marshal(byName[name])
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	file := filepath.Join(t.TempDir(), "decisions.jsonl")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPolicyReplay(t *testing.T) {
	output, err := runCommand(t, "policy", "replay", writeDecisions(t), "--policies", imagePolicies)
	if err != nil {
		t.Fatal(err)
	}
	// Work that takes long reports its progress.
	golden.Assert(t, regexp.MustCompile(`(?m)^\d+ records\n`).ReplaceAllString(output, ""), "policy/replay.txt")
}

func TestPolicyReplayOptions(t *testing.T) {
	replayedLog := writeDecisions(t)
	text, err := os.ReadFile(replayedLog)
	if err != nil {
		t.Fatal(err)
	}
	compressed := filepath.Join(t.TempDir(), "decisions.jsonl.gz")
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	if _, err := writer.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(compressed, zipped.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	part, newer := filepath.Join(t.TempDir(), "part.gz"), filepath.Join(t.TempDir(), "newer.jsonl")
	for name, text := range map[string][]byte{part: zipped.Bytes()[:15], newer: []byte("{\"kind\":\"DecisionRecord\",\"version\":99}\n")} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		arguments []string
		want      int
		err       string
	}{
		"compressed":      {[]string{compressed}, 4, ""},
		"two logs":        {[]string{compressed, replayedLog}, 8, ""},
		"another project": {[]string{replayedLog, "--project", "other"}, 0, ""},
		"since":           {[]string{replayedLog, "--since", "2026-01-05T12:00:01Z"}, 3, ""},
		"until":           {[]string{replayedLog, "--until", "2026-01-05T12:00:01Z"}, 1, ""},
		"ago":             {[]string{replayedLog, "--since", "1h"}, 0, ""},
		"fails":           {[]string{replayedLog, "--fail-on-change"}, 4, "decisions come out otherwise, or cannot be replayed"},
		"nothing":         {[]string{os.DevNull, "--fail-on-change"}, 0, "the logs have no decisions that are selected"},
		"a directory":     {[]string{filepath.Dir(compressed)}, 0, "logs that could not be read to their end: 1"},
		"a part":          {[]string{part}, 0, "logs that could not be read to their end: 1"},
		"newer":           {[]string{newer, "--fail-on-change"}, 0, "lines of the logs were skipped that may be decisions"},
		"no interval":     {[]string{replayedLog, "--since", "2026-01-06T12:00:01Z", "--until", "2026-01-05T12:00:01Z"}, 0, "--since: 2026-01-06T12:00:01Z is not before --until, 2026-01-05T12:00:01Z"},
		"no time":         {[]string{replayedLog, "--since", "yesterday"}, 0, `--since: "yesterday" is neither a duration such as 24h nor a time such as 2026-01-05T12:00:00Z`},
		"negative":        {[]string{replayedLog, "--show", "-1"}, 0, "--show: -1 is no number of examples"},
		"no log":          {[]string{filepath.Join(t.TempDir(), "missing")}, 0, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			output, err := runCommand(t, append([]string{"policy", "replay", "--policies", imagePolicies, "-o", "json"}, tc.arguments...)...)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("the error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var summary struct{ Decisions int }
			if err := json.Unmarshal([]byte(output), &summary); err != nil || summary.Decisions != tc.want {
				t.Errorf("%d decisions (%v), want %d\n%s", summary.Decisions, err, tc.want, output)
			}
		})
	}
}
