// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"crypto/sha256"
	"encoding/json"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Memory remembers what was applied for each subject and how it then looked, so
// that the API server is not asked to apply again what nobody changed. Without it
// everything is applied each time.
type Memory struct {
	mu sync.Mutex
	of map[string]map[key]mark
}

// mark is a digest of what was wanted, and one of what was there after it was
// applied. The zero digest is of nothing.
type mark struct{ wanted, there [sha256.Size]byte }

// recall is what is remembered of a subject. It is not to be changed.
func (m *Memory) recall(place Place) map[key]mark {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[place.String()]
}

// remember keeps this of a subject, and nothing else; nothing where it is empty.
func (m *Memory) remember(place Place, marks map[key]mark) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(marks) == 0 {
		delete(m.of, place.String())
		return
	}
	if m.of == nil {
		m.of = map[string]map[key]mark{}
	}
	m.of[place.String()] = marks
}

// holds tells whether what is wanted was applied, and nobody changed it since, as
// far as a cache knows.
func (k mark) holds(of key, wanted mark, seen client.Object) bool {
	return seen != nil && seen.GetDeletionTimestamp() == nil && k.wanted != [sha256.Size]byte{} &&
		k.wanted == wanted.wanted && k.there == looks(of, seen)
}

// looks is a digest of what lifecycle renders of an object. A queue kind counts its
// changes itself; of the kinds of Kubernetes not all do.
func looks(of key, there client.Object) [sha256.Size]byte {
	seen := []any{there.GetUID(), there.GetLabels(), there.GetAnnotations()}
	if k := kinds[of.kind]; k.isQueue() {
		seen = append(seen, there.GetGeneration())
	} else {
		seen = append(seen, k.spec(there))
	}
	return digest(seen)
}

// digest is of a value of JSON; nothing is remembered of another.
func digest(value any) [sha256.Size]byte {
	raw, err := json.Marshal(value)
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(raw)
}
