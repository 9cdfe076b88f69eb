// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// kubectl returns the output of a command on the shared cluster.
func kubectl(ctx context.Context, args ...string) (string, error) {
	all := append([]string{"--kubeconfig", filepath.Join(sharedCluster.dir, "kubeconfig")}, args...)
	out, err := exec.CommandContext(ctx, "kubectl", all...).CombinedOutput()
	return string(out), err
}

// A list of registries in a ConfigMap decides which images pods may use: a policy warns while it does not exist, pods
// follow each change, a fault keeps the last good version, and a deleted ConfigMap refuses pods and is named. The objects of
// a kind can be read once the webhook has the right to list them. Guards invariants 4 and 8 of the design.
func TestPoliciesReadData(t *testing.T) {
	t.Parallel()
	const ns = "policy-data"
	s := sharedCluster
	s.createDepartment(t, ns, newPoolQuota("dgx", "1", "1"))
	s.createGovernedProject(t, ns, ns, newPoolQuota("dgx", "0", "1"))
	manifest := `apiVersion: sluice.dev/v1alpha1
kind: Policy
metadata: {name: allowed-registries}
spec:
  match: {projects: [policy-data]}
  rego: |
    package allowed_registries

    deny contains {"msg": sprintf("%s: the registry is not allowed", [container.image]), "fix": data.config.registries.contact} if {
      some container in input.object.spec.containers
      not allowed(container.image)
    }

    allowed(image) if {
      some prefix in data.config.registries.allowed
      startswith(image, prefix)
    }
`
	t.Cleanup(func() {
		policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "allowed-registries"}}
		if err := client.IgnoreNotFound(s.adminClient.Delete(context.Background(), policy)); err != nil {
			t.Error(err)
		}
	})
	out, err := kubectlApply(t, manifest)
	t.Logf("kubectl apply: %s", out)
	if err != nil || !strings.Contains(out, "Warning: data.config.registries does not exist; until then the policy fails") &&
		!strings.Contains(out, "the policy was not checked") {
		t.Errorf("kubectl apply: %v: %s", err, out)
	}
	// expect waits until a pod with an image is refused with a message, or admitted without one.
	expect := func(step, image, message string) {
		t.Helper()
		logged := ""
		eventuallyLong(t, func() error {
			pod := newPod(ns, "a", func(p *corev1.Pod) { p.Spec.Containers[0].Image = image })
			err := s.adminClient.Create(t.Context(), pod, client.DryRunAll)
			switch {
			case err == nil && message == "":
				return nil
			case err == nil:
				return errors.New(step + ": the pod is admitted")
			case message == "" || !strings.Contains(err.Error(), message):
				return fmt.Errorf("%s: %w, want %q", step, err, message)
			}
			logged = err.Error()
			return nil
		})
		t.Logf("%s: %s", step, logged)
	}
	status := func(message string) {
		t.Helper()
		eventuallyLong(t, func() error {
			out, err := kubectl(t.Context(), "get", "slpol", "allowed-registries", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
			if err != nil || !strings.Contains(out, message) {
				return errors.Join(err, fmt.Errorf("the condition Ready: %s, want %q", out, message))
			}
			t.Logf("the condition Ready: %s", out)
			return nil
		})
	}
	expect("no ConfigMap", "registry.example.org/a", "the policy allowed-registries could not be evaluated: data.config.registries does not exist")
	status("data.config.registries does not exist; until then the policy refuses every object that it matches")

	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: "registries", Labels: map[string]string{v1alpha1.PolicyDataLabel: "true"},
		},
		Data: map[string]string{"allowed.yaml": "- registry.example.org/\n", "contact": "ask help@example.org"},
	}
	s.createForTest(t, config)
	expect("the ConfigMap", "registry.example.org/a", "")
	expect("another registry", "mirror.example.org/a", "mirror.example.org/a: the registry is not allowed; ask help@example.org (policy allowed-registries)")
	status("in force")
	update := func(allowed string) {
		t.Helper()
		config.Data["allowed.yaml"] = allowed
		if err := s.adminClient.Update(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	update("- mirror.example.org/\n")
	expect("a changed ConfigMap", "mirror.example.org/a", "")
	expect("the former registry", "registry.example.org/a", "registry.example.org/a: the registry is not allowed")
	update("- &a [mirror.example.org/, *a]\n")
	eventuallyLong(t, func() error {
		out, err := kubectl(t.Context(), "get", "events", "-n", v1alpha1.SystemNamespace, "--field-selector", "reason=PolicyDataInvalid")
		if err != nil || !strings.Contains(out, "anchors and aliases are not allowed: write the value twice; policies read its last good version") {
			return errors.Join(err, fmt.Errorf("events: %s", out))
		}
		t.Logf("kubectl get events:\n%s", out)
		return nil
	})
	expect("the last good version", "mirror.example.org/a", "")
	if err := s.adminClient.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	expect("a deleted ConfigMap", "mirror.example.org/a", "data.config.registries does not exist")

	// The objects of a kind, with the right to list them.
	objects := strings.NewReplacer("allowed-registries", "fast-classes", `data.config.registries.contact`, `"x"`,
		"some prefix in data.config.registries.allowed", `some prefix, _ in data.objects["StorageClass.storage.k8s.io"]`).Replace(manifest)
	if err := s.adminClient.Delete(t.Context(), &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "allowed-registries"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "fast-classes"}}
		if err := client.IgnoreNotFound(s.adminClient.Delete(context.Background(), policy)); err != nil {
			t.Error(err)
		}
	})
	if out, err := kubectlApply(t, objects); err != nil {
		t.Fatalf("kubectl apply: %v: %s", err, out)
	}
	expect("a kind that is not listed", "fast.example.org/a", `data.objects["StorageClass.storage.k8s.io"] does not exist: spec.policyData`)
	list := "apiVersion: sluice.dev/v1alpha1\nkind: AdmissionParameters\nmetadata: {name: sluice}\nspec:\n" +
		"  policyData: [{apiVersion: storage.k8s.io/v1, kind: StorageClass, scope: Cluster, fields: [provisioner]}]\n"
	if out, err := kubectlServerSide(t.Context(), list); err != nil {
		t.Fatalf("kubectl apply --server-side: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := kubectlServerSide(context.Background(), strings.Split(list, "spec:")[0]+"spec: {}\n"); err != nil {
			t.Errorf("kubectl apply --server-side: %v: %s", err, out)
		}
	})
	expect("a kind without the right", "fast.example.org/a", `storageclasses.storage.k8s.io is forbidden: User "system:serviceaccount:sluice-system:webhook" cannot list`)
	s.createForTest(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "storage-classes-for-policies", Labels: map[string]string{v1alpha1.AggregateToPolicyDataLabel: "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses"}, Verbs: []string{"list", "watch"}}},
	})
	expect("no such object", "fast.example.org/a", "fast.example.org/a: the registry is not allowed")
	s.createForTest(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast.example.org"}, Provisioner: "example.org/nvme"})
	expect("a new object", "fast.example.org/a", "")
}

// kubectlServerSide applies a part of an object as a platform team.
func kubectlServerSide(ctx context.Context, manifest string) (string, error) {
	command := exec.CommandContext(ctx, "kubectl", "--kubeconfig", filepath.Join(sharedCluster.dir, "kubeconfig"),
		"apply", "--server-side", "--field-manager=platform-team", "-f", "-")
	command.Stdin = strings.NewReader(manifest)
	out, err := command.CombinedOutput()
	return string(out), err
}
