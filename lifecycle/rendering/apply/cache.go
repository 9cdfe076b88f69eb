// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"crypto/sha256"
	"encoding/json"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache remembers what was applied for each owner and what the API server made of
// it, so that nothing is applied again that did not change.
type Cache struct {
	mu      sync.Mutex
	digests map[string]map[objectKey]digestPair
}

// digestPair is a digest of a desired object and one of the object after it was
// applied. The zero digest matches nothing.
type digestPair struct{ desired, observed [sha256.Size]byte }

// get returns the digests of an owner, which the caller must not change.
func (c *Cache) get(owner string) map[objectKey]digestPair {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.digests[owner]
}

// set replaces the digests of an owner.
func (c *Cache) set(owner string, digests map[objectKey]digestPair) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(digests) == 0 {
		delete(c.digests, owner)
		return
	}
	if c.digests == nil {
		c.digests = map[string]map[objectKey]digestPair{}
	}
	c.digests[owner] = digests
}

// isCurrent reports whether the same object was applied before and has not changed
// since, as far as a cache knows.
func (d digestPair) isCurrent(kind Kind, now digestPair, cached client.Object) bool {
	return cached != nil && cached.GetDeletionTimestamp() == nil && d.desired != [sha256.Size]byte{} &&
		d.desired == now.desired && d.observed == observedDigest(kind, cached)
}

// observedDigest returns a digest of what lifecycle applies of an object. A queue kind
// has a generation; not all kinds of Kubernetes have.
func observedDigest(kind Kind, observed client.Object) [sha256.Size]byte {
	parts := []any{observed.GetUID(), observed.GetLabels(), observed.GetAnnotations()}
	if kind.isQueue() {
		parts = append(parts, observed.GetGeneration())
	} else {
		parts = append(parts, kind.Content(observed))
	}
	return digest(parts)
}

// digest returns the digest of a JSON value, or the zero digest of another.
func digest(value any) [sha256.Size]byte {
	raw, err := json.Marshal(value)
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(raw)
}
