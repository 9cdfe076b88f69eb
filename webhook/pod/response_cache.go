// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"crypto/sha256"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/cache"
	"sluice.dev/webhook/evaluation"
)

// How many answers, and how many bytes of them, one generation of a memory has at
// most.
const (
	maxCachedResponses     = 512
	maxCachedResponseBytes = 8 << 20
)

// responseCache keeps the latest answers, so that of a controller's pods, which all look
// the same, one is judged. The same view, request, tenant and policies have the
// same answer; where a policy reads the time or the present use, none is kept.
// Responses are not changed after they are given, but for their UID, which lies in
// the copy. The zero value is empty and ready to use.
type responseCache struct {
	fieldUsages fieldUsageCache
	once        sync.Once
	entries     *cache.Cache[cacheKey, admission.Response]
}

func (m *responseCache) store() *cache.Cache[cacheKey, admission.Response] {
	m.once.Do(func() {
		m.entries = cache.New[cacheKey, admission.Response](maxCachedResponses, maxCachedResponseBytes)
	})
	return m.entries
}

type cacheKey [sha256.Size]byte

// newCacheKey is what an answer follows from.
func newCacheKey(q *evaluation.Request, review []byte) cacheKey {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(q.Policies.Digest()), []byte(q.Tenant.Version), review} {
		sum := sha256.Sum256(part)
		h.Write(sum[:])
	}
	h.Write(q.Raw)
	return cacheKey(h.Sum(nil))
}

// responseSize is how many bytes a response takes, about.
func responseSize(response *admission.Response) int {
	size := 512 + len(response.Patch)
	if response.Result != nil {
		size += len(response.Result.Message)
	}
	for _, warning := range response.Warnings {
		size += 16 + len(warning)
	}
	for name, note := range response.AuditAnnotations {
		size += 64 + len(name) + len(note)
	}
	return size
}

// fieldUsage is what the policies that are asked about a subject's pods read of what
// differs each time.
type fieldUsage struct {
	// timeOrUse: the time, or the project's present use.
	timeOrUse bool
	// What the API server makes up for each pod of a controller.
	name, uid, creationTimestamp bool
}

// newFieldUsage asks the policies of a set.
func newFieldUsage(set *engine.Set, subject engine.Subject) fieldUsage {
	field := func(name string) bool {
		return set.Reads(subject, "object", "metadata", name) || set.Reads(subject, "review", "object", "metadata", name)
	}
	return fieldUsage{
		timeOrUse:         set.Reads(subject, "now") || set.Reads(subject, "use"),
		name:              field("name") || set.Reads(subject, "review", "name"),
		uid:               field("uid"),
		creationTimestamp: field("creationTimestamp"),
	}
}

// maxFieldUsages is for how many subjects one generation keeps it: each project is
// one, under each set of policies.
const maxFieldUsages = 4096

// fieldUsageCache keeps what sets of policies read. The zero value is ready to use.
type fieldUsageCache struct {
	once    sync.Once
	entries *cache.Cache[fieldUsageKey, fieldUsage]
}

type fieldUsageKey struct {
	digest  string
	subject engine.Subject
}

func (r *fieldUsageCache) get(set *engine.Set, subject engine.Subject) fieldUsage {
	r.once.Do(func() { r.entries = cache.New[fieldUsageKey, fieldUsage](maxFieldUsages, maxFieldUsages) })
	key := fieldUsageKey{set.Digest(), subject}
	known, ok := r.entries.Get(key)
	if !ok {
		known = newFieldUsage(set, subject)
		r.entries.Put(key, known, 1)
	}
	return known
}
