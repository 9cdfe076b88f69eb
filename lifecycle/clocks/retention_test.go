// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

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
func TestClocksAreTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, job("a-broken"), job("gone"), job("there"))
		wholeSecond()
		for _, name := range []string{"a-broken", "gone", "there"} {
			c.run(name, "-1")
		}
		c.live(time.Minute)
		clear(c.pods)
		c.live(time.Minute)
		if err := c.raw.Delete(t.Context(), c.job("gone")); err != nil {
			t.Fatal(err)
		}
		asked := map[string]int{}
		c.r.Live = interceptor.NewClient(c.raw, interceptor.Funcs{
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
			if err := c.r.sweep(t.Context()); err == nil {
				t.Error("what cannot be looked at is not told of")
			}
			for _, one := range c.clocks() {
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
