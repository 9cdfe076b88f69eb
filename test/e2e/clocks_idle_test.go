// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// inPlaceOfAgent stops a node's agent as it stands, until the test ends, and then
// takes back what was written in its place.
func (c *timed) inPlaceOfAgent(t *testing.T, node string) {
	t.Helper()
	c.pause(t, "gpuagent-"+node)
	t.Cleanup(func() {
		object := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		forget := client.RawPatch(types.MergePatchType, []byte(`{"status":{"sampledAt":null,"utilisationSource":null,"pods":null}}`))
		if err := c.admin.Status().Patch(context.Background(), object, forget); err != nil {
			t.Error(err)
		}
	})
}

// sample writes what a node's agent would: when the GPUs of pods were last used,
// as of now. Those that are not named it knows nothing of.
func (c *timed) sample(t *testing.T, node string, source v1alpha1.UtilisationSource, active map[workload]time.Time) error {
	t.Helper()
	object := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		return err
	}
	now := metav1.Now()
	object.Status.SampledAt, object.Status.UtilisationSource, object.Status.Pods = &now, source, nil
	for w, at := range active {
		last := metav1.NewTime(at)
		object.Status.Pods = append(object.Status.Pods, v1alpha1.PodUse{
			PodReference: v1alpha1.PodReference{UID: w.GetUID(), Namespace: w.GetNamespace(), Name: w.GetName()}, LastActive: &last,
		})
	}
	return c.admin.Status().Update(t.Context(), object)
}

// awaitSampled is awaitClock while the node's agent samples.
func (c *timed) awaitSampled(t *testing.T, active map[workload]time.Time, w workload, want string, is func(*v1alpha1.WorkloadClockStatus) bool) v1alpha1.WorkloadClockStatus {
	t.Helper()
	return c.awaitClock(t, w, want, func(s *v1alpha1.WorkloadClockStatus) bool {
		if err := c.sample(t, "dgx-2", v1alpha1.UtilisationNVML, active); err != nil {
			t.Log(err) // somebody else wrote the node; it is sampled again
		}
		return is(s)
	})
}

func idleUnknown(s *v1alpha1.WorkloadClockStatus) bool {
	return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionIdleUnknown)
}

// endIdle shows that an interactive workload whose GPUs are not used ends after two
// hours, warned at half of them, and that one whose use nobody knows runs on.
func (c *timed) endIdle(t *testing.T) {
	const ns = "idle"
	c.governed(t, "h2-students", ns, quota("dgx-mig", "500m", "1"))
	forgotten := aPod(ns, "forgotten", slice, ofType(v1alpha1.WorkloadInteractive))
	unseen := aPod(ns, "unseen", slice, ofType(v1alpha1.WorkloadInteractive))
	c.begin(t, forgotten, unseen)
	for _, w := range []workload{forgotten, unseen} {
		c.awaitClock(t, w, "nobody knows whether it is used", idleUnknown)
	}
	c.inPlaceOfAgent(t, "dgx-2")
	c.step(t, 3*time.Hour)
	c.running(t, "while nobody samples", forgotten, unseen)

	used, since := time.Now(), c.time.Now()
	active := map[workload]time.Time{forgotten: used}
	c.awaitSampled(t, active, forgotten, "it is known whether it is used", func(s *v1alpha1.WorkloadClockStatus) bool { return !idleUnknown(s) })
	c.step(t, time.Hour)
	warned := c.awaitSampled(t, active, forgotten, "its people were warned that it is idle", func(s *v1alpha1.WorkloadClockStatus) bool {
		return s.Deadline != nil && s.Deadline.Reason == v1alpha1.EndIdle && s.Deadline.AnnouncedAt != nil
	})
	if got := warned.Deadline.At.Sub(since); got < 2*time.Hour-2*time.Second || got > 2*time.Hour+10*time.Minute {
		t.Errorf("it ends %s after its GPU was last used, want two hours", got)
	}
	idle := 0
	for _, n := range c.told(t, ns) {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadIdle && n.Spec.Subject.Name == "forgotten" && n.Spec.Lead.Length() == time.Hour {
			idle++
		} else {
			t.Errorf("somebody was told %s about %s", n.Spec.Kind, n.Spec.Subject.Name)
		}
	}
	if idle != 1 {
		t.Errorf("people were warned %d times that it is idle, want once", idle)
	}
	c.stepTo(t, warned.Deadline.At.Add(-10*time.Minute))
	c.running(t, "ten minutes before it has been idle for two hours", forgotten)
	c.stepTo(t, warned.Deadline.At.Time)
	c.awaitSampled(t, active, forgotten, "it is stopped", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Stopped != nil })
	c.ended(t, v1alpha1.EndIdle, 5*time.Hour, forgotten)
	if s := c.status(t, forgotten); !s.Stopped.Until.Equal(&s.Stopped.At) || s.Stopped.At.Before(&warned.Deadline.At) {
		t.Errorf("it was stopped at %s until %s, want at %s, and that it may start at once", s.Stopped.At, s.Stopped.Until, warned.Deadline.At)
	}

	c.running(t, "although nobody knows whether it is used", unseen)
	c.await(t, func() error {
		return c.sample(t, "dgx-2", v1alpha1.UtilisationUnavailable, map[workload]time.Time{unseen: used})
	})
	c.step(t, 3*time.Hour)
	c.await(t, func() error {
		return c.sample(t, "dgx-2", v1alpha1.UtilisationUnavailable, map[workload]time.Time{unseen: used})
	})
	// Its next warning is seen, so the samples before it were, too.
	c.stepTo(t, c.end(t, unseen).Add(-leads[0]))
	s := c.awaitClock(t, unseen, "its people were warned of its limit", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == 1 })
	if !idleUnknown(&s) || s.IdleSince != nil || s.Deadline.Reason != v1alpha1.EndMaxRuntime {
		t.Errorf("where nothing can tell the use it is idle since %s, and ends because of %s", s.IdleSince, s.Deadline.Reason)
	}
	c.running(t, "although nothing can tell whether it is used", unseen)
}
