// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// ownerMail is a mail to the owner of a project.
type ownerMail struct {
	// subject is a part of its subject.
	subject string
	// end is that of its calendar entry; zero if it has none.
	end time.Time
	// cancels reports whether it cancels the calendar entry.
	cancels bool
}

// The parts of subjects of mails in German.
const (
	warningSubject   = "läuft "
	renewedSubject   = "verlängert"
	deletedSubject   = "gelöscht"
	expiredSubject   = "ist abgelaufen"
	unlimitedSubject = "unbefristet gültig"
)

// assertOwnerMails compares the mails to the owner. The SEQUENCE of the calendar entry grows with each other end.
func (e *expiringProject) assertOwnerMails(t *testing.T, want []ownerMail) {
	t.Helper()
	mails := e.readMailsTo(t, string(e.owner.Email))
	var texts []string
	for _, m := range mails {
		texts = append(texts, fmt.Sprintf("%s %s%+v", m.subject, m.method, m.events))
	}
	if len(mails) != len(want) {
		t.Errorf("%s has %d mails, want %d:\n%s", e.owner.Email, len(mails), len(want), strings.Join(texts, "\n"))
		return
	}
	former := map[string]calendarEvent{}
	for i, m := range mails {
		w := want[i]
		if !strings.Contains(m.subject, w.subject) || !strings.Contains(m.subject, e.name) {
			t.Errorf("mail %d to %s is %q, want %q", i+1, e.owner.Email, texts[i], w.subject)
		}
		if w.end.IsZero() && !w.cancels {
			if len(m.events) > 0 {
				t.Errorf("mail %d to %s, %s, has a calendar entry", i+1, e.owner.Email, texts[i])
			}
			continue
		}
		end, status := w.end.UTC().Format(calendarTime), "CONFIRMED"
		if w.cancels {
			end, status = "", "CANCELLED"
		}
		if len(m.events) != 1 || m.events[0].end != end || m.events[0].status != status || (m.method == "CANCEL") != w.cancels {
			t.Errorf("mail %d to %s, %s: want the calendar entry %s %s", i+1, e.owner.Email, texts[i], end, status)
			continue
		}
		event := m.events[0]
		if last, known := former[event.uid]; known {
			before, _ := strconv.Atoi(last.sequence)
			if now, err := strconv.Atoi(event.sequence); err != nil || now < before || last.end != event.end && now == before {
				t.Errorf("mail %d to %s, %s: want a SEQUENCE after %s, which had the end %s", i+1, e.owner.Email, texts[i], last.sequence, last.end)
			}
		}
		former[event.uid] = event
	}
}

// warned plans the warnings of a deadline, which the owner gets when they are due.
func (f *expiryFaults) warned(t *testing.T, e *expiringProject, mails *[]ownerMail, deadline time.Time, days ...int) {
	for _, d := range days {
		f.at(e.dueAt(t, deadline, d), func() {
			*mails = append(*mails, ownerMail{subject: warningSubject, end: deadline})
			e.waitForOwnerMails(t, len(*mails))
			e.waitForPhase(t, v1alpha1.ProjectExpiring)
		})
	}
}

// expired plans that a project expires at a deadline.
func (f *expiryFaults) expired(t *testing.T, e *expiringProject, mails *[]ownerMail, deadline time.Time) {
	f.at(deadline, func() {
		p := e.waitForPhase(t, v1alpha1.ProjectExpired)
		if p.Status.ClosedAt == nil || p.Status.ClosedAt.Time.Before(deadline) {
			t.Errorf("%s is closed at %s, want %s", e.name, p.Status.ClosedAt, deadline)
		}
		// The suspension of createExpiryDepartment.
		*mails = append(*mails, ownerMail{subject: expiredSubject, end: deadline.In(berlinZone(t)).AddDate(0, 0, 1500)})
		e.waitForOwnerMails(t, len(*mails))
	})
}

// requireNext fails the test unless the project ends at a time next.
func (e *expiringProject) requireNext(t *testing.T, phase v1alpha1.ProjectPhase, end time.Time) {
	t.Helper()
	p := e.waitFor(t, fmt.Sprintf("is %s until %s", phase, end), func(s *v1alpha1.ProjectStatus) bool {
		return s.Phase == phase && s.Next != nil && s.Next.At.Time.Equal(end) && s.ExpiresAt != nil && s.ExpiresAt.Time.Equal(end)
	})
	if p.Status.ClosedAt != nil {
		t.Errorf("%s is %s and closed since %s", e.name, phase, p.Status.ClosedAt)
	}
}

// movedEnd returns the end of a project whose first warning comes late, at a time: after thirty days, at midnight.
func movedEnd(t *testing.T, warned time.Time) time.Time {
	t.Helper()
	return period.DateOf(warned.Add(30*24*time.Hour), berlinZone(t)).End(berlinZone(t))
}
