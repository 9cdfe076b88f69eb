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

// It guards that clocks go thirty days after their workloads, that one which cannot
// be looked at keeps no other, and that those known to be gone are not asked for.
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
		asked := map[string]int{}
		c.reconciler.Live = interceptor.NewClient(c.rawClient, interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, ok := o.(*unstructured.Unstructured); ok {
					asked[key.Name]++
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
				t.Error("what cannot be looked at is not told of")
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
		if asked["gone"] != 1 {
			t.Errorf("asked %d times for what is gone", asked["gone"])
		}
		if got := sweep(); len(got) != 3 {
			t.Errorf("after 29 days there are the clocks of %v", got)
		}
		time.Sleep(25 * time.Hour)
		if got := sweep(); len(got) != 2 || got[0] != "a-broken" || got[1] != "there" {
			t.Errorf("after 30 days there are the clocks of %v", got)
		}
	})
}
