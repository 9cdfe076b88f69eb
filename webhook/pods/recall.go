// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"crypto/sha256"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies/engine/recent"
	"sluice.dev/webhook/judge"
)

// How many answers, and how many bytes of them, one generation of a memory has at
// most.
const (
	maxRecalled      = 512
	maxRecalledBytes = 8 << 20
)

// memory keeps the latest answers, so that of a controller's pods, which all look
// the same, one is judged. The same view, request, tenant and policies have the
// same answer; where a policy reads the time or the present use, none is kept.
// Responses are not changed after they are given, but for their UID, which lies in
// the copy. The zero value is empty and ready to use.
type memory struct {
	readings readings
	once     sync.Once
	answers  *recent.Memory[key, admission.Response]
}

func (m *memory) recent() *recent.Memory[key, admission.Response] {
	m.once.Do(func() { m.answers = recent.New[key, admission.Response](maxRecalled, maxRecalledBytes) })
	return m.answers
}

type key [sha256.Size]byte

// keyOf is what an answer follows from.
func keyOf(q *judge.Question, review []byte) key {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(q.Policies.Digest()), []byte(q.Tenant.Version), review} {
		sum := sha256.Sum256(part)
		h.Write(sum[:])
	}
	h.Write(q.Raw)
	return key(h.Sum(nil))
}

// sizeOf is how many bytes a response takes, about.
func sizeOf(response *admission.Response) int {
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
