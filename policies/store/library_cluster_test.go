// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

// A library and its importer follow their objects on a real API server: a breaking version and the deletion of the library,
// while nothing refuses them, change nothing that is in force, also for a process that starts afterwards. Guards invariants 4
// and 10 of the design.
func TestStoreFollowsLibraries(t *testing.T) {
	c := clustertest.Admin(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}}
	if err := c.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	running := &Store{Engine: newEngine(t)}
	startStore(t, running)
	want := func(store *Store, denial string) {
		t.Helper()
		clustertest.Eventually(t, func() error {
			got, err := evaluatePod(t, store.Engine)
			if diff := cmp.Diff([]string{"importer: " + denial}, got); err != nil || diff != "" {
				return fmt.Errorf("%w: (-want +got):\n%s", err, diff)
			}
			return nil
		})
	}
	wantReport := func(name string, generation, enforced int64) {
		t.Helper()
		clustertest.Eventually(t, func() error {
			report, _ := running.Report(name)
			if report.Generation != generation || report.EnforcedGeneration != enforced || !report.Active {
				return fmt.Errorf("report %+v, want generation %d with %d in force", report, generation, enforced)
			}
			return nil
		})
	}
	object := newPolicy("registries", "package lib.registries\n\nmessage := \"one\"\n", "")
	object.Spec.Type = v1alpha1.PolicyTypeLibrary
	library := createPolicy(t, c, object)
	importer := createPolicy(t, c, newPolicy("importer", "package importer\n\nimport data.lib.registries\n\ndeny contains registries.message\n", ""))
	want(running, "one")

	change := func(rego string) {
		t.Helper()
		library.Spec.Rego = rego
		if err := c.Update(t.Context(), library); err != nil {
			t.Fatal(err)
		}
	}
	change("package lib.registries\n\nmessage := \"two\"\n")
	want(running, "two")
	wantReport("registries", 2, 2)
	change("package lib.registries\n\nother := \"three\"\n")
	wantReport("registries", 3, 2)
	want(running, "two")

	// Lifecycle keeps the importer with its library.
	set, err := running.Engine.Current()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(importer), importer); err != nil {
		t.Fatal(err)
	}
	revision, err := NewRevision(importer, set.Imports("importer")...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.IgnoreNotFound(c.Delete(context.Background(), revision)) })
	for _, deleted := range []bool{false, true} {
		if deleted {
			if err := c.Delete(t.Context(), library); err != nil {
				t.Fatal(err)
			}
			clustertest.Eventually(t, func() error {
				if report, exists := running.Report("registries"); exists {
					return fmt.Errorf("the library is still known: %+v", report)
				}
				return nil
			})
			want(running, "two")
		}
		started := &Store{Engine: newEngine(t)}
		startStore(t, started)
		clustertest.Eventually(t, func() error { return started.Ready(nil) })
		want(started, "two")
	}
}
