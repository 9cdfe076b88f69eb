// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"crypto/sha256"
	"sync"

	"github.com/tidwall/gjson"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies/engine"
	"sluice.dev/webhook/judge"
)

// maxRecalled is how many answers one generation of a memory has; at most twice
// as many are kept.
const maxRecalled = 512

// memory keeps the latest answers, so that of a controller's pods, which are all
// the same, one is judged. The same pod, request, tenant and policies have the
// same answer; where a policy reads the time or the present use, none is kept.
// The zero value is empty and ready to use.
type memory struct {
	mu         sync.Mutex
	young, old map[key]admission.Response
}

type key [sha256.Size]byte

// keyOf is what an answer follows from, and false where it follows from the
// moment too.
func keyOf(set *engine.Set, q *judge.Question, review []byte) (key, bool) {
	subject := q.Subject()
	if set.Reads(subject, "now") || set.Reads(subject, "use") {
		return key{}, false
	}
	h := sha256.New()
	for _, part := range [][]byte{[]byte(set.Digest()), []byte(q.Tenant.Version), review} {
		sum := sha256.Sum256(part)
		h.Write(sum[:])
	}
	// The API server notes there when the pod was written, and nobody reads it.
	managed := gjson.GetBytes(q.Raw, "metadata.managedFields")
	if managed.Index > 0 {
		h.Write(q.Raw[:managed.Index])
		h.Write(q.Raw[managed.Index+len(managed.Raw):])
	} else {
		h.Write(q.Raw)
	}
	return key(h.Sum(nil)), true
}

// recall is the answer that was given before.
func (m *memory) recall(k key) (admission.Response, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.young[k]
	if !ok {
		if found, ok = m.old[k]; ok {
			m.keep(k, found)
		}
	}
	return found, ok
}

// remember keeps an answer. Responses are not changed after they are given, but
// for their UID, which lies in the copy.
func (m *memory) remember(k key, response admission.Response) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(k, response)
}

func (m *memory) keep(k key, response admission.Response) {
	if m.young == nil || len(m.young) >= maxRecalled {
		m.young, m.old = make(map[key]admission.Response), m.young
	}
	m.young[k] = response
}
