// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// What runs in a namespace that is nobody's is let alone; its time stands still,
// and goes on when somebody has the namespace again.
func TestANamespaceWithoutProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, job("train"))
		wholeSecond()
		c.run("train", "-1")
		c.live(40 * time.Hour)
		var project v1alpha1.Project
		if err := c.raw.Get(t.Context(), client.ObjectKey{Name: lab}, &project); err != nil {
			t.Fatal(err)
		}
		has := project.Status.Namespace
		project.Status.Namespace = nil
		if err := c.raw.Update(t.Context(), &project); err != nil {
			t.Fatal(err)
		}
		c.live(30 * time.Minute)
		s := c.clocks()[0].Status
		if s.State != v1alpha1.ClockStatePaused || s.RunningSince != nil || s.Deadline != nil || s.AccumulatedSeconds != 40*60*60 {
			t.Errorf("while it is nobody's: %s, %d s, %v", s.State, s.AccumulatedSeconds, s.Deadline)
		}
		if due, running, err := c.r.Brake.ending(t.Context(), time.Now()); due+running > 0 || err != nil {
			t.Errorf("the brake counts %d of %d, %v", due, running, err)
		}
		writes := c.calls
		c.live(20 * time.Minute)
		if c.calls != writes {
			t.Errorf("%d writes while it is nobody's", c.calls-writes)
		}
		project.Status.Namespace, project.CreationTimestamp = has, metav1.Now() // another project
		if err := c.raw.Update(t.Context(), &project); err != nil {
			t.Fatal(err)
		}
		c.live(8*time.Hour - time.Second)
		if ptr.Deref(c.job("train").Spec.Suspend, false) {
			t.Error("it was stopped too early: its time had stood still")
		}
		c.live(2 * time.Second)
		if !ptr.Deref(c.job("train").Spec.Suspend, false) {
			t.Error("it runs on")
		}
	})
}
