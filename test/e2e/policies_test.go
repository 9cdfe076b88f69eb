// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// kubectlApply applies a manifest and returns the output of kubectl.
func kubectlApply(t *testing.T, manifest string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "kubectl", "--kubeconfig", filepath.Join(sharedCluster.dir, "kubeconfig"), "apply", "-f", "-")
	command.Stdin = strings.NewReader(manifest)
	out, err := command.CombinedOutput()
	return string(out), err
}

// applyChecked applies a policy, again if an overloaded machine did not check it in time: then it is
// accepted with a warning.
func applyChecked(t *testing.T, name, rego string) (out string, err error) {
	t.Helper()
	remove := func() {
		policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := client.IgnoreNotFound(sharedCluster.adminClient.Delete(context.Background(), policy)); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(remove)
	eventuallyLong(t, func() error {
		if out, err = kubectlApply(t, policyManifest(name, rego)); strings.Contains(out, "the policy was not checked") {
			remove()
			return unexpectedState("the policy is checked", out)
		}
		return nil
	})
	return out, err
}

// policyManifest returns a Policy that matches no project of the other tests.
func policyManifest(name, rego string) string {
	return fmt.Sprintf("apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: %s}\nspec:\n  match: {projects: [nobody]}\n  rego: |\n    %s\n",
		name, strings.ReplaceAll(rego, "\n", "\n    "))
}

// exhaustingPolicy returns a small policy with which the compiler would be busy for hours.
func exhaustingPolicy() string {
	const depth = 40
	return "package slow\n\ndeny contains \"x\" if " + strings.Repeat("count([y | y := ", depth) + "1" + strings.Repeat("])", depth) + " > 1\n"
}

// A policy that could not be in force is refused when it is applied: one that does not compile,
// one that reads a field that does not exist, and one that exhausts the compiler. The webhook
// answers other requests meanwhile. Guards invariants 10 and 11 of the design.
func TestPoliciesAreJudgedWhenTheyAreApplied(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ rego, message string }{
		"broken":        {"package broken\n\ndeny contains \"x\" if input.objekt\n", "spec.rego:3:22: Invalid value: input.objekt does not exist"},
		"unknown-field": {"package unknown\n\ndeny contains \"x\" if input.workload.gpu > 1\n", "spec.rego:3:22: Invalid value: input.workload.gpu does not exist; did you mean gpus?"},
		"slow":          {exhaustingPolicy(), "the policy cannot be compiled: it needs more than"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := applyChecked(t, "judged-"+name, tt.rego)
			t.Logf("kubectl apply: %s", out)
			if err == nil || !strings.Contains(out, tt.message) {
				t.Errorf("kubectl apply: %v: %s\nwant %s", err, out, tt.message)
			}
		})
	}
	const good = "package good\n\ndeny contains \"x\" if input.object.spec.nodename\n"
	out, err := applyChecked(t, "judged-good", good)
	if err != nil {
		t.Fatalf("kubectl apply: %v: %s", err, out)
	}
	for _, warning := range []string{
		"Warning: spec.rego:3:22: input.object.spec.nodename does not exist; did you mean nodeName?",
		"Warning: spec.match.projects[0]: there is no project nobody",
	} {
		if !strings.Contains(out, warning) {
			t.Errorf("kubectl apply prints\n%s\nwant %s", out, warning)
		}
	}
	// A conflict with a policy in force, which the examples show, is a warning.
	const conflicting = "package conflicting\n\noverrides := {\"spec\": {\"schedulerName\": \"mine\"}}\n"
	const conflict = `Warning: spec.schedulerName: policy judged-conflicting sets "mine", policy schedulers.kube-scheduler sets "default-scheduler", for example on`
	if out, err := applyChecked(t, "judged-conflicting", conflicting); err != nil || !strings.Contains(out, conflict) {
		t.Errorf("kubectl apply: %v: %s\nwant %s", err, out, conflict)
	}
}
