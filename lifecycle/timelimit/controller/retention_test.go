// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Clocks are deleted thirty days after their workloads. A workload that cannot be read does
// not block the others, and workloads that are known to be missing are not read again.
func TestExpiredClocksAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, newJob("a-broken"), newJob("gone"), newJob("there"))
		waitForWholeSecond()
		for _, name := range []string{"a-broken", "gone", "there"} {
			c.startPod(name, "-1")
		}
		c.advance(time.Minute)
		clear(c.pods)
		c.advance(time.Minute)
		if err := c.rawClient.Delete(t.Context(), c.getJob("gone")); err != nil {
			t.Fatal(err)
		}
		reads := map[string]int{}
		c.reconciler.Live = interceptor.NewClient(c.rawClient, interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, ok := o.(*unstructured.Unstructured); ok {
					reads[key.Name]++
				}
				if key.Name == "a-broken" {
					return errors.New("no conversion")
				}
				return w.Get(ctx, key, o, opts...)
			},
		})
		sweep := func() (names []string) {
			t.Helper()
			if err := c.reconciler.removeExpiredClocks(t.Context()); err == nil {
				t.Error("an unreadable workload is not reported")
			}
			for _, one := range c.listClocks() {
				names = append(names, one.Spec.Root.Name)
			}
			return names
		}
		sweep()
		for range 29 * 24 {
			time.Sleep(time.Hour)
			sweep()
		}
		if reads["gone"] != 1 {
			t.Errorf("read a missing workload %d times", reads["gone"])
		}
		if got := sweep(); len(got) != 3 {
			t.Errorf("after 29 days the clocks are %v", got)
		}
		time.Sleep(25 * time.Hour)
		if got := sweep(); len(got) != 2 || got[0] != "a-broken" || got[1] != "there" {
			t.Errorf("after 30 days the clocks are %v", got)
		}
	})
}
