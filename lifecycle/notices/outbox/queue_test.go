// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Many mails go out between two looks at all Notices, as fast as the mail server takes
// them; and what becomes urgent meanwhile waits no longer than a turn.
func TestManyInATurn(t *testing.T) {
	within(t, func(w *world) {
		w.live(time.Minute)
		const many = 2000 // the mail server needs 10 ms for each, four abreast
		for i := range many {
			w.record(fmt.Sprintf("n%04d", i), to(v1alpha1.EmailAddress(fmt.Sprintf("u%d@example.org", i))))
		}
		w.record("urgent", func(n *v1alpha1.Notice) {
			n.Spec.DueAt = metav1.NewTime(time.Now().Add(w.limits.Settle + time.Second))
			n.Spec.Deadline = &metav1.Time{Time: n.Spec.DueAt.Add(time.Minute)}
		})
		urgent := w.notice("urgent")
		w.live(w.limits.Settle + 6*time.Second)
		if len(w.sent()) != many+1 || len(w.mails) != many+1 {
			t.Fatalf("%d mails, %d different, within 6 s; want %d", len(w.mails), len(w.sent()), many+1)
		}
		for _, m := range w.mails {
			if late := m.at.Sub(urgent.Spec.DueAt.Time); m.id == "<urgent@example.org>" && late > turn+time.Second {
				t.Errorf("what was urgent waited %s", late)
			}
		}
	})
}
