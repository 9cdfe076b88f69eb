// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/test/clustertest"
)

var (
	projectCount    = flag.Int("projects", 1000, "how many projects are made in BenchmarkProjects")
	projectInterval = flag.Duration("apart", 0, "how long after one another they are made; 0 is as fast as the API server accepts them")
)

// BenchmarkProjects measures how long it takes from a project's creation to its
// quota and its queues, where many are made, by eight clients: of all of them the
// median, and of a hundred the slowest but one. Run it with -benchtime 1x.
//
//	ms-median, ms-p99  from the answer to the creation to the last object, as watched
//	writes/project     what lifecycle writes for each until nothing changes any more
func BenchmarkProjects(t *testing.B) {
	installCRDs(t)
	w := startTestEnv(t)
	w.policies.setPolicy(enginePolicy)
	pool := w.createPool("many", v1alpha1.SchedulerKueue)
	department := w.createDepartment("many", pool.Name)
	w.waitForField(newKueueObject("Cohort", "many"), "nominal", "0")

	var mu sync.Mutex
	created, there := map[string]time.Time{}, map[string][]time.Time{}
	read, err := metadata.NewForConfig(clustertest.Start(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	kinds := apply.QueueKinds()[:0:0]
	for _, kind := range apply.QueueKinds() {
		if kind.Kind == "ClusterQueue" || kind.Kind == "LocalQueue" {
			kinds = append(kinds, kind)
		}
	}
	kinds = append(kinds, corev1.SchemeGroupVersion.WithKind("ResourceQuota"))
	for _, kind := range kinds {
		mapping, err := w.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Fatal(err)
		}
		events, err := read.Resource(mapping.Resource).Watch(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelProject})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(events.Stop)
		go func() {
			for event := range events.ResultChan() {
				if object, ok := event.Object.(*metav1.PartialObjectMetadata); ok && event.Type == "ADDED" {
					mu.Lock()
					name := object.Labels[v1alpha1.LabelProject]
					there[name] = append(there[name], policytime.MachineNow())
					mu.Unlock()
				}
			}
		}()
	}

	began := policytime.MachineNow()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	tick := time.NewTicker(max(*projectInterval, time.Nanosecond))
	defer tick.Stop()
	for i := range *projectCount {
		<-tick.C
		group.Go(func() error {
			project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%d", i)}, Spec: v1alpha1.ProjectSpec{
				Department: department.Name, Owners: []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "A", Email: "a@example.org"}}}, NodePools: poolQuotas("0", pool.Name),
			}}
			err := w.Create(ctx, project)
			mu.Lock()
			defer mu.Unlock()
			created[project.Name] = policytime.MachineNow()
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d projects made in %s", *projectCount, policytime.MachineNow().Sub(began).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := w.DeleteAllOf(context.Background(), &v1alpha1.Project{}); err != nil {
			t.Error(err)
		}
	})
	clustertest.EventuallyWithin(t, 3*time.Minute, func() error {
		mu.Lock()
		defer mu.Unlock()
		for name := range created {
			if len(there[name]) < len(kinds) {
				return fmt.Errorf("%s has %d objects", name, len(there[name]))
			}
		}
		return nil
	})
	t.Logf("all have their objects after %s", policytime.MachineNow().Sub(began).Round(time.Millisecond))
	var took []time.Duration
	for name, at := range created {
		took = append(took, slices.MaxFunc(there[name], time.Time.Compare).Sub(at))
	}
	slices.Sort(took)
	w.waitUntilIdle()
	t.ReportMetric(0, "ns/op")
	t.ReportMetric(float64(took[len(took)/2].Milliseconds()), "ms-median")
	t.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "ms-p99")
	t.ReportMetric(float64(w.writes.Load())/float64(*projectCount), "writes/project")
	w.requireNoErrors()
}
