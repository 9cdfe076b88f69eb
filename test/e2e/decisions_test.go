// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/webhook/replay"
)

// The webhook records the pods of a project with their objects, and sluice policy replay says which of them a stricter policy would
// refuse, and for which it cannot be known.
func TestRecordedDecisionsAreReplayed(t *testing.T) {
	const ns = "replayed"
	c := newPolicyTimeCluster(t)
	file := filepath.Join(c.dir, "decisions.jsonl")
	c.reconfigure(t, func(component string, config map[string]any) {
		if component == "webhook" {
			config["decisions"] = map[string]any{"objects": true, "file": map[string]any{"path": file}}
		}
	})
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	for name, image := range map[string]string{"versioned": "registry.example.org/a:1", "newest": "registry.example.org/a:latest"} {
		c.createForTest(t, newPod(ns, name, func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = image
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: "a secret"}}
		}))
	}
	for rules, want := range map[string]replay.Summary{
		`warn contains "never" if input.object.spec.hostNetwork`:                                                 {Decisions: 2, Same: 2},
		`deny contains "no version" if { some c in input.object.spec.containers; endswith(c.image, ":latest") }`: {Decisions: 2, Same: 1, NowDenied: 1},
		`deny contains "a token" if { some c in input.object.spec.containers; c.env[_].value == "a secret" }`:    {Decisions: 2, NotReplayed: 2},
	} {
		folder := t.TempDir()
		policy := "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: stricter}\nspec: {}\n"
		for name, text := range map[string]string{"stricter.yaml": policy, "stricter.rego": "package stricter\n\n" + rules + "\n"} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, func() error {
			command := exec.CommandContext(t.Context(), c.binary, "policy", "replay", file, "--policies", folder, "--project", ns, "-o", "json")
			out, err := command.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			var got replay.Summary
			if err := json.Unmarshal(out, &got); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			if got.Decisions != want.Decisions || got.Same != want.Same || got.NowDenied != want.NowDenied || got.NotReplayed != want.NotReplayed {
				return unexpectedState(fmt.Sprintf("%+v", want), string(out))
			}
			if want.NowDenied > 0 && got.Examples[0].Name != "newest" {
				return unexpectedState("the pod newest as example", got.Examples)
			}
			return nil
		})
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
}
