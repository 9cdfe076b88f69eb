// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

const (
	// finishedNotices is about a third of a large site's year.
	finishedNotices = 100_000
	// openNotices are not sent yet.
	openNotices = 100
)

// newLargeCache returns an environment whose cache holds finished Notices of the last four weeks,
// two about each workload, and a few open ones, to two thousand people.
func newLargeCache(b *testing.B) *testEnv {
	b.Helper()
	w := newTestEnv(b)
	for i := range finishedNotices + openNotices {
		at := metav1.NewTime(w.clock.Now().Add(-time.Duration(i) * 28 * 24 * time.Hour / (finishedNotices + openNotices)).Truncate(time.Second))
		n := newNotice(toRecipient(v1alpha1.EmailAddress(fmt.Sprintf("user-%d@example.org", i/2%2000))))
		n.Name, n.CreationTimestamp, n.Spec.DueAt = fmt.Sprintf("n-%06d", i), at, at
		n.Spec.Subject.Namespace, n.Spec.Subject.Name = fmt.Sprintf("lab-%d", i%400), fmt.Sprintf("train-%d", i/2)
		if i >= openNotices {
			n.Status = v1alpha1.NoticeStatus{Phase: v1alpha1.NoticeSent, SentAt: &at, MessageID: "<" + n.Name + "@example.org>"}
		}
		if err := w.cache.indexer.Add(n); err != nil {
			b.Fatal(err)
		}
	}
	return w
}

// BenchmarkPass decides what to send. "index" reads the open Notices and those related to them;
// "all" reads every Notice, for comparison.
func BenchmarkPass(b *testing.B) {
	w := newLargeCache(b)
	s := w.processes[0].Sender
	pass := func(read func(context.Context) ([]v1alpha1.Notice, error)) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				notices, err := read(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if p := newPlan(s.currentInstant(), notices, time.Time{}, s.Limits); p.pending != openNotices {
					b.Fatalf("%d notices are open, want %d", p.pending, openNotices)
				}
			}
		}
	}
	b.Run("index", pass(s.relevantNotices))
	b.Run("all", pass(func(context.Context) ([]v1alpha1.Notice, error) {
		var all v1alpha1.NoticeList
		err := w.cache.list(&all)
		return all.Items, err
	}))
}

// BenchmarkRetention searches for expired Notices while none is: at the start and in later runs.
// "all" reads every Notice, for comparison.
func BenchmarkRetention(b *testing.B) {
	w := newLargeCache(b)
	newRetention := func() *Retention { return &Retention{Client: w.processes[0].Client, Clock: w.clock} }
	search := func(b *testing.B, r *Retention) {
		if _, err := r.deleteExpired(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("start", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			search(b, newRetention())
		}
	})
	b.Run("later", func(b *testing.B) {
		b.ReportAllocs()
		r := newRetention()
		search(b, r)
		for b.Loop() {
			search(b, r)
		}
	})
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var all v1alpha1.NoticeList
			if err := w.cache.list(&all); err != nil {
				b.Fatal(err)
			}
			now := w.clock.Now()
			for i := range all.Items {
				if isExpired(&all.Items[i], now) {
					b.Fatalf("notice %s is expired", all.Items[i].Name)
				}
			}
		}
	})
}
