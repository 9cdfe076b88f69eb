// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/data"
	"sluice.dev/policies/engine"
	"sluice.dev/test/clustertest"
)

// createObject creates an object and deletes it after the test.
func createObject(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.Background(), object)); err != nil {
			t.Error(err)
		}
	})
}

func newWatcher(t *testing.T) *data.Watcher {
	t.Helper()
	config := clustertest.Start(t).Config()
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	http, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &data.Watcher{Client: objects, Mapper: http.RESTMapper(), Logger: logr.Discard()}
}

func TestStoreFollowsData(t *testing.T) {
	c := clustertest.Admin(t)
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}}
	if err := c.Create(t.Context(), system); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	createPolicy(t, c, newPolicy("reads", `package reads
deny contains data.config.registries.contact
deny contains name if data.objects["StorageClass.storage.k8s.io"][name].provisioner
`, ""))
	store := &Store{Engine: newEngine(t), Objects: newWatcher(t)}
	var mu sync.Mutex
	var faults []string
	store.OnDataFaults(func(all []data.Fault) {
		mu.Lock()
		defer mu.Unlock()
		faults = nil
		for _, fault := range all {
			faults = append(faults, fault.Name+": "+fault.Message)
		}
	})
	startStore(t, store)
	want := func(step string, denials ...string) {
		t.Helper()
		clustertest.Eventually(t, func() error {
			got, err := evaluatePod(t, store.Engine)
			if err == nil {
				err = store.Ready(nil)
			}
			if err == nil && !slices.Equal(got, denials) {
				err = fmt.Errorf("%s: denials %q, want %q", step, got, denials)
			}
			return err
		})
	}
	const noConfig, noKind = "data.config.registries does not exist",
		`data.objects["StorageClass.storage.k8s.io"] does not exist: spec.policyData of the AdmissionParameters does not list the kind`
	failed := func(missing string) string { return "reads: the policy reads could not be evaluated: " + missing }
	want("nothing", failed(noConfig+"; "+noKind))
	if report, _ := store.Report("reads"); strings.Join(report.Missing, "; ") != noConfig+"; "+noKind {
		t.Errorf("the report misses %q", report.Missing)
	}

	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: "registries", Labels: map[string]string{v1alpha1.PolicyDataLabel: "true"},
		},
		Data: map[string]string{"contact": "help@example.org"},
	}
	createObject(t, c, config)
	want("a ConfigMap", failed(noKind))

	createObject(t, c, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "nvme"})
	createObject(t, c, &v1alpha1.AdmissionParameters{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName},
		Spec: v1alpha1.AdmissionParametersSpec{PolicyData: []v1alpha1.PolicyDataKind{
			{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass", Scope: v1alpha1.PolicyDataCluster, Fields: []string{"provisioner"}},
		}},
	})
	want("a kind", "reads: fast", "reads: help@example.org")
	createObject(t, c, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Provisioner: "disk"})
	want("another object", "reads: fast", "reads: help@example.org", "reads: slow")

	config.Data = map[string]string{"contact.json": "{"}
	if err := c.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(faults) != 1 || !strings.HasPrefix(faults[0], "registries: key contact.json: invalid JSON") {
			return fmt.Errorf("faults %q, want that of contact.json", faults)
		}
		return nil
	})
	want("the last good version", "reads: fast", "reads: help@example.org", "reads: slow")
	if err := c.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	want("a deleted ConfigMap", failed(noConfig))
}

// Without a watcher, as in lifecycle, the store knows which kinds are listed, and is ready without their objects.
func TestObjectKindsWithoutAWatcher(t *testing.T) {
	store := &Store{Engine: newEngine(t)}
	if err := store.Ready(nil); !errors.Is(err, errNotLoaded) {
		t.Errorf("ready: %v, want errNotLoaded", err)
	}
	listed := []v1alpha1.PolicyDataKind{{APIVersion: "v1", Kind: "Service"}}
	missing := engine.NewData(nil, store.objectKinds(t.Context(), listed)).Missing(&engine.DataReads{Kinds: []string{"Service", "Pod"}})
	want := []string{"data.objects.Pod does not exist: spec.policyData of the AdmissionParameters does not list the kind"}
	if !slices.Equal(missing, want) {
		t.Errorf("missing %q, want %q", missing, want)
	}
}
