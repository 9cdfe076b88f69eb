// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// The indexes of the cache. A pass reads the open Notices and those related to them, not the
// record of a year.
const (
	// indexOpen holds the Notices that are not finished, or that are to be sent again, as "true".
	indexOpen = "outbox.open"
	// indexThread holds the Notices by recipient and subject.
	indexThread = "outbox.thread"
	// indexSentDay holds the sent Notices by UTC day, in policy time.
	indexSentDay = "outbox.sentDay"
)

// noticeIndexes holds the indexes.
var noticeIndexes = map[string]client.IndexerFunc{
	indexOpen: indexNotice(func(n *v1alpha1.Notice) string {
		if _, again := resendRequestedAt(n); again || !isFinished(n) {
			return "true"
		}
		return ""
	}),
	indexThread: indexNotice(threadKey),
	indexSentDay: indexNotice(func(n *v1alpha1.Notice) string {
		if n.Status.SentAt == nil {
			return ""
		}
		return n.Status.SentAt.UTC().Format(time.DateOnly)
	}),
}

// indexNotice returns the index of a key; an empty key is not indexed.
func indexNotice(key func(*v1alpha1.Notice) string) client.IndexerFunc {
	return func(object client.Object) []string {
		if n, ok := object.(*v1alpha1.Notice); ok {
			if k := key(n); k != "" {
				return []string{k}
			}
		}
		return nil
	}
}

// threadKey identifies the Notices about one subject to one recipient. The decisions and the
// calendar entry of a Notice depend on the others of its thread.
func threadKey(n *v1alpha1.Notice) string {
	if n.Spec.Subject == nil {
		return ""
	}
	s := n.Spec.Subject
	return strings.Join([]string{recipientAddress(n), s.Kind, s.Namespace, s.Name, string(s.UID)}, "\x00")
}

// IndexNotices adds the indexes to the cache.
func IndexNotices(ctx context.Context, indexer client.FieldIndexer) error {
	for _, name := range slices.Sorted(maps.Keys(noticeIndexes)) {
		if err := indexer.IndexField(ctx, &v1alpha1.Notice{}, name, noticeIndexes[name]); err != nil {
			return fmt.Errorf("index notices by %s: %w", name, err)
		}
	}
	return nil
}

// listByIndex returns the Notices with a key. They belong to the cache.
func listByIndex(ctx context.Context, cache client.Reader, index, key string) ([]v1alpha1.Notice, error) {
	var list v1alpha1.NoticeList
	if err := cache.List(ctx, &list, client.MatchingFields{index: key}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list notices by %s: %w", index, err)
	}
	return list.Items, nil
}

// relevantNotices returns the open Notices, their digests, the Notices that they carry, and the
// threads of all these.
func (s *Sender) relevantNotices(ctx context.Context) ([]v1alpha1.Notice, error) {
	all, err := listByIndex(ctx, s.Client, indexOpen, "true")
	if err != nil {
		return nil, err
	}
	known, threads := map[string]bool{}, map[string]bool{}
	for i := range all {
		known[all[i].Name] = true
	}
	for i := 0; i < len(all); i++ { // all grows
		n := &all[i]
		named := CarriedNotices(n)
		if n.Spec.Digest != "" && !isFinished(n) {
			named = append(named, n.Spec.Digest)
		}
		for _, name := range named {
			if known[name] {
				continue
			}
			known[name] = true
			var other v1alpha1.Notice
			err := s.Client.Get(ctx, client.ObjectKey{Name: name}, &other)
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("get notice %s: %w", name, err)
			}
			if err == nil {
				all = append(all, other)
			}
		}
		key := threadKey(&all[i])
		if key == "" || threads[key] {
			continue
		}
		threads[key] = true
		thread, err := listByIndex(ctx, s.Client, indexThread, key)
		if err != nil {
			return nil, err
		}
		for j := range thread {
			if !known[thread[j].Name] {
				known[thread[j].Name] = true
				all = append(all, thread[j])
			}
		}
	}
	return all, nil
}

// sentSince counts the mails to each address since a policy time. It counts Notices, so a restart
// loses nothing; the Notices of a digest count as one mail.
func (s *Sender) sentSince(ctx context.Context, since, now time.Time) (map[string]int, error) {
	counts, known := map[string]int{}, map[string]bool{}
	for day := since.UTC().Truncate(24 * time.Hour); !day.After(now); day = day.AddDate(0, 0, 1) {
		sent, err := listByIndex(ctx, s.Client, indexSentDay, day.Format(time.DateOnly))
		if err != nil {
			return nil, err
		}
		for i := range sent {
			n := &sent[i]
			if n.Status.SentAt.After(since) && !known[n.Status.MessageID] {
				known[n.Status.MessageID] = true
				counts[recipientAddress(n)]++
			}
		}
	}
	return counts, nil
}
