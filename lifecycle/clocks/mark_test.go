// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Pods say when they end from when that was announced, also those that come later
// and those that were there before a restart; and it is written once.
func TestPodsSayWhenTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(name string) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: lab, Name: name}}
		}
		c := newCluster(t, job("train"), pod("train-1"), pod("train-2"), pod("train-3"))
		says := func(when, name, want string) {
			t.Helper()
			p := pod(name)
			if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				t.Fatal(err)
			}
			if got := p.Annotations[v1alpha1.AnnotationEndsAt]; got != want {
				t.Errorf("%s, %s says that it ends at %q, want %q", when, name, got, want)
			}
		}
		end := wholeSecond().Add(48 * time.Hour).UTC().Format(time.RFC3339)
		c.run("train", "-1")
		c.live(23 * time.Hour)
		says("before it was announced", "train-1", "")
		c.live(2 * time.Hour)
		says("after it was announced", "train-1", end)
		c.run("train", "-2")
		c.live(time.Minute)
		says("when it came", "train-2", end)
		calls := c.calls
		c.live(time.Hour)
		if c.calls != calls {
			t.Errorf("%d writes while nothing changes", c.calls-calls)
		}
		c.restart()
		c.run("train", "-3")
		c.live(time.Minute)
		says("when it came after a restart", "train-3", end)
		delete(c.pods, "train-1")
		delete(c.pods, "train-2")
		delete(c.pods, "train-3")
		c.live(10 * time.Minute)
		if len(c.r.marked.pods) > 0 {
			t.Errorf("what is gone is remembered: %v", c.r.marked.pods)
		}
	})
}
