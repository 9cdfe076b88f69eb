// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/podcache"
)

// Admission lets in the pods of these controllers in a closed project. Guards invariant 4 of the design: a controller of an
// earlier object of the name is not among them. Without a change nothing is written.
func TestClockRecordsControllersOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.mapper.Add(deploymentKind, meta.RESTScopeNamespace)
		c.mapper.Add(replicaSetKind, meta.RESTScopeNamespace)
		const controller = "system:serviceaccount:kube-system:deployment-controller"
		c.createObject(deploymentKind, "web", alice)
		want := []types.UID{}
		for _, name := range []string{"web-1", "web-2"} {
			c.create(replicaSetKind, name, controller, c.ownedBy("web"))
			c.advance(time.Minute)
			want = append(want, c.getObject(replicaSetKind, name).GetUID())
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, c.clockStatus(deploymentKind, "web").PodControllers); diff != "" {
			t.Errorf("controllers of both revisions (-want +got):\n%s", diff)
		}
		writes := c.calls
		c.replacePod(c.getObject(replicaSetKind, "web-2"))
		c.advance(time.Minute)
		if c.calls != writes {
			t.Errorf("%d writes after a pod of a known controller", c.calls-writes)
		}

		if err := c.rawClient.Delete(t.Context(), c.getObject(deploymentKind, "web")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"web-1", "web-2"} {
			replicaSet := c.getObject(replicaSetKind, name)
			c.endPods(replicaSet.GetUID())
			if err := client.IgnoreNotFound(c.rawClient.Delete(t.Context(), replicaSet)); err != nil {
				t.Fatal(err)
			}
		}
		c.advance(time.Minute)
		c.createObject(deploymentKind, "web", alice)
		c.create(replicaSetKind, "web-3", controller, c.ownedBy("web"))
		c.advance(time.Minute)
		if diff := cmp.Diff([]types.UID{c.getObject(replicaSetKind, "web-3").GetUID()}, c.clockStatus(deploymentKind, "web").PodControllers); diff != "" {
			t.Errorf("controllers of the new object (-want +got):\n%s", diff)
		}
	})
}

func TestPodControllersAreLimited(t *testing.T) {
	w := &workload{}
	former := &v1alpha1.WorkloadClockStatus{RootUID: "root", PodControllers: []types.UID{"former"}}
	run := func(controllers int) {
		w.runningPods = []*podcache.Pod{{Controller: podcache.Owner{UID: "root"}}, {}}
		for i := range controllers {
			w.runningPods = append(w.runningPods, &podcache.Pod{Controller: podcache.Owner{UID: types.UID(fmt.Sprintf("c-%02d", i))}})
		}
	}
	run(0)
	if diff := cmp.Diff([]types.UID{"former"}, w.podControllers(former)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := w.podControllers(&v1alpha1.WorkloadClockStatus{RootUID: "root"}); got != nil {
		t.Errorf("pods of the workload itself: %v", got)
	}
	run(v1alpha1.MaxPodControllers - 1)
	if got := w.podControllers(former); len(got) != v1alpha1.MaxPodControllers || !slices.Contains(got, "former") {
		t.Errorf("%d controllers: %v", len(got), got)
	}
	run(v1alpha1.MaxPodControllers + 1)
	if got := w.podControllers(former); len(got) != v1alpha1.MaxPodControllers || slices.Contains(got, "former") {
		t.Errorf("%d controllers: %v", len(got), got)
	}
}
