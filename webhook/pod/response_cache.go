// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"crypto/sha256"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
)

// The limits of one generation of the cache.
const (
	maxCachedResponses     = 512
	maxCachedResponseBytes = 8 << 20
)

// responseCache caches the latest responses, so that the pods of a controller, which have the same view, are
// evaluated once. A response depends only on the view, the review, the tenant and the policies, unless a policy
// reads the time or the current use. Cached responses are never modified: the API server's UID is set on the
// caller's copy. The zero value is ready to use.
type responseCache struct {
	fieldReads fieldReadsCache
	once       sync.Once
	entries    *engine.Cache[cacheKey, cachedResponse]
}

// cachedResponse is a response with the violations that are counted for each pod that gets it, and what its record has.
type cachedResponse struct {
	response   admission.Response
	violations evaluation.Violations
	decided    evaluation.Decided
}

func (c *responseCache) store() *engine.Cache[cacheKey, cachedResponse] {
	c.once.Do(func() {
		c.entries = engine.NewCache[cacheKey, cachedResponse](maxCachedResponses, maxCachedResponseBytes)
	})
	return c.entries
}

type cacheKey [sha256.Size]byte

// newCacheKey returns a digest of all that a response depends on.
func newCacheKey(p *podRequest) cacheKey {
	h := sha256.New()
	h.Write(p.stamp[:])
	review := sha256.Sum256(p.review)
	h.Write(review[:])
	h.Write(p.request.Raw)
	return cacheKey(h.Sum(nil))
}

// responseSize estimates the memory of a response, in bytes.
func responseSize(response *admission.Response) int {
	size := 512 + len(response.Patch)
	if response.Result != nil {
		size += len(response.Result.Message)
	}
	for _, warning := range response.Warnings {
		size += 16 + len(warning)
	}
	for name, text := range response.AuditAnnotations {
		size += 64 + len(name) + len(text)
	}
	return size
}

// fieldReads records which fields the policies read, for the fields that differ between the pods of one
// controller.
type fieldReads struct {
	// timeOrUse reports whether a policy reads the time or the project's current use, or has an exemption, which ends.
	timeOrUse bool
	// The fields of the pod's metadata that the API server generates.
	name, uid, creationTimestamp bool
}

// newFieldReads inspects the policies of a set that match the subject.
func newFieldReads(set *engine.Set, subject engine.Subject) fieldReads {
	readsMetadata := func(name string) bool {
		return set.Reads(subject, "object", "metadata", name) || set.Reads(subject, "review", "object", "metadata", name)
	}
	exempts, byName := set.Exempts(subject)
	return fieldReads{
		timeOrUse:         set.Reads(subject, "now") || set.Reads(subject, "use") || exempts,
		name:              readsMetadata("name") || set.Reads(subject, "review", "name") || byName,
		uid:               readsMetadata("uid"),
		creationTimestamp: readsMetadata("creationTimestamp"),
	}
}

// maxCachedFieldReads is the largest number of entries in one generation of the cache. Each project has one entry
// for each set of policies.
const maxCachedFieldReads = 4096

// fieldReadsCache caches the field reads of sets of policies. The zero value is ready to use.
type fieldReadsCache struct {
	once    sync.Once
	entries *engine.Cache[fieldReadsKey, fieldReads]
}

type fieldReadsKey struct {
	digest  string
	subject engine.Subject
}

func (c *fieldReadsCache) get(set *engine.Set, subject engine.Subject) fieldReads {
	c.once.Do(func() {
		c.entries = engine.NewCache[fieldReadsKey, fieldReads](maxCachedFieldReads, maxCachedFieldReads)
	})
	key := fieldReadsKey{set.PoliciesDigest(), subject}
	reads, ok := c.entries.Get(key)
	if !ok {
		reads = newFieldReads(set, subject)
		c.entries.Put(key, reads, 1)
	}
	return reads
}
