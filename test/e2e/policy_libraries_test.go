// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// libraryManifest returns a library and a policy that imports it and reads the namespace. The policy leaves out one project and
// exempts some pods of another one.
func libraryManifest(function, until string) string {
	return fmt.Sprintf(`apiVersion: sluice.dev/v1alpha1
kind: Policy
metadata: {name: e2e-registries}
spec:
  type: Library
  rego: |
    package lib.e2e_registries

    %s(image) if startswith(image, "registry.example.org/")
---
apiVersion: sluice.dev/v1alpha1
kind: Policy
metadata: {name: e2e-importer}
spec:
  match:
    departments: [libraries]
    exclude: {projects: [libraries-excluded]}
  exemptions:
    - {projects: [libraries], names: ["exempted-*"], reason: migration, until: %q}
  rego: |
    package e2e_importer

    import data.lib.e2e_registries

    deny contains sprintf("a foreign image in %%s", [input.namespace.labels["sluice.dev/project"]]) if {
      some container in input.object.spec.containers
      not e2e_registries.allowed(container.image)
    }
`, function, until)
}

// A library and its importer come into force together; a version without what the importer needs, and the deletion of the
// library, are refused. Excluded projects are not evaluated, exempted pods get a warning until the end of the exemption, and
// the policy reads the namespace. Guards invariants 4 and 11 of the design.
func TestPolicyLibraries(t *testing.T) {
	t.Parallel()
	const ns, excluded = "libraries", "libraries-excluded"
	s := sharedCluster
	s.createDepartment(t, "libraries", newPoolQuota("dgx", "1", "2"))
	s.createGovernedProject(t, "libraries", ns, newPoolQuota("dgx", "0", "1"))
	s.createGovernedProject(t, "libraries", excluded, newPoolQuota("dgx", "0", "1"))
	t.Cleanup(func() {
		for _, name := range []string{"e2e-importer", "e2e-registries"} {
			policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: name}}
			eventuallyLong(t, func() error { return client.IgnoreNotFound(s.adminClient.Delete(context.Background(), policy)) })
		}
	})
	later := policytime.MachineNow().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	eventuallyLong(t, func() error {
		if out, err := kubectlApply(t, libraryManifest("allowed", later)); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	tryPod := func(namespace, name string) (string, error) {
		return kubectl(t.Context(), "run", name, "--image=busybox", "-n", namespace, "--dry-run=server")
	}
	const denial = "a foreign image in libraries (policy e2e-importer)"
	eventuallyLong(t, func() error {
		if out, err := tryPod(ns, "a"); err == nil || !strings.Contains(out, denial) {
			return unexpectedState("the pod is refused", out)
		}
		return nil
	})
	if out, err := tryPod(excluded, "a"); err != nil {
		t.Errorf("a pod of the excluded project: %s", out)
	}
	warning := fmt.Sprintf("Warning: exempted until %s (migration): %s", later, denial)
	if out, err := tryPod(ns, "exempted-a"); err != nil || !strings.Contains(out, warning) {
		t.Errorf("an exempted pod: %s\nwant %s", out, warning)
	}

	out, err := kubectlApply(t, libraryManifest("permitted", later))
	const broken = "policy e2e-importer does not compile with this version: e2e-importer:7:3: undefined function data.lib.e2e_registries.allowed"
	if !strings.Contains(out, "was not checked") && (err == nil || !strings.Contains(out, broken)) {
		t.Errorf("kubectl apply of a breaking version: %s\nwant %s", out, broken)
	}
	// Unchecked versions, on an overloaded machine, do not come into force either.
	if out, err := tryPod(ns, "a"); err == nil || !strings.Contains(out, denial) {
		t.Errorf("after a breaking version: %s", out)
	}
	out, err = kubectl(t.Context(), "delete", "slpol", "e2e-registries")
	if want := "the library is imported by e2e-importer: change or delete these first"; err == nil || !strings.Contains(out, want) {
		t.Errorf("kubectl delete: %s\nwant %s", out, want)
	}

	// The exemption ends without an action. One that has ended is refused, so that each attempt needs a later end.
	eventuallyLong(t, func() error {
		soon := policytime.MachineNow().Add(30 * time.Second).UTC().Format(time.RFC3339)
		if out, err := kubectlApply(t, libraryManifest("allowed", soon)); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	eventuallyLong(t, func() error {
		if out, err := tryPod(ns, "exempted-a"); err == nil || !strings.Contains(out, denial) {
			return unexpectedState("the pod is refused after the end", out)
		}
		return nil
	})
	policy := &v1alpha1.Policy{}
	if err := s.adminClient.Get(t.Context(), client.ObjectKey{Name: "e2e-importer"}, policy); err != nil {
		t.Fatal(err)
	}
	eventuallyLong(t, func() error {
		revision, err := s.policyRevision(t, policy)
		if err == nil && !strings.Contains(string(revision.Data.Raw), "lib.e2e_registries") {
			return unexpectedState("the revision has the library", revision.Name)
		}
		return err
	})
}
