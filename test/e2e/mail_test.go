// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// mailed is a mail as `sluice mail show --output json` has it.
type mailed struct {
	Number                             int
	To, Subject, MessageID, Text, HTML string
	Problem                            string
	Attachments                        []struct{ Name, Type string }
}

// mailsTo are those that a person got, in the order in which they came.
func (c *timed) mailsTo(t *testing.T, address string) (list []mailed) {
	t.Helper()
	var said struct{ Mails []mailed }
	out := c.run(t, "mail", "--to", address, "--output", "json")
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, m := range said.Mails {
		out := c.run(t, "mail", "show", strconv.Itoa(m.Number), "--output", "json")
		if err := json.Unmarshal([]byte(out), &m); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		list = append(list, m)
	}
	return list
}

// awaitMails waits until a person got so many.
func (c *timed) awaitMails(t *testing.T, address string, n int) (list []mailed) {
	t.Helper()
	c.await(t, func() error {
		if list = c.mailsTo(t, address); len(list) < n {
			return errNotYet(fmt.Sprintf("%s got %d mails", address, n), len(list))
		}
		return nil
	})
	return list
}

// A student's workload: its owner gets every mail of its life, once and in order, each
// with the end that holds then.
func TestMail(t *testing.T) {
	const ns, owner = "written-to", "owner@example.org"
	c := newTimed(t)
	c.governed(t, "h2-students", ns, quota("dgx-mig", "500m", "1"))
	job := aJob(ns, "training", slice)
	c.begin(t, job)

	first := c.end(t, job)
	c.stepTo(t, first.Add(-24*time.Hour))
	c.awaitMails(t, owner, 1)
	c.stepTo(t, first.Add(-4*time.Hour))
	c.awaitMails(t, owner, 2)
	c.run(t, "extend", "job/training", "-n", ns, "--by", "24h", "--reason", "two epochs are left")
	c.awaitMails(t, owner, 3)
	moved := c.awaitClock(t, job, "its end has moved", func(s *v1alpha1.WorkloadClockStatus) bool {
		return s.Deadline != nil && s.Deadline.At.After(first)
	}).Deadline.At.Time
	for i, lead := range leads {
		c.stepTo(t, moved.Add(-lead))
		c.awaitMails(t, owner, 4+i)
	}
	c.stepTo(t, moved)
	c.ended(t, v1alpha1.EndMaxRuntime, 72*time.Hour, job)
	mails := c.awaitMails(t, owner, 7)

	c.tellInOrder(t, mails, first, moved)
	c.areOneAppointment(t, owner, first, moved)
	c.areTheNotices(t, ns, mails)
}

// areOneAppointment checks that the warnings are one appointment, which moves with the
// end, in one thread with the mail that tells the end.
func (c *timed) areOneAppointment(t *testing.T, owner string, first, moved time.Time) {
	t.Helper()
	var got []event
	threads := map[string]int{}
	for _, l := range c.lettersTo(t, owner) {
		got = append(got, l.events...)
		threads[l.references]++
	}
	if len(got) == 0 {
		t.Fatal("no mail has an appointment")
	}
	var want []event
	for i, end := range []time.Time{first, first, moved, moved, moved} {
		sequence := "0"
		if i >= 2 {
			sequence = "1"
		}
		want = append(want, event{uid: got[0].uid, sequence: sequence, ends: end.UTC().Format(calendarTime), status: "CONFIRMED"})
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("the appointments in the mails differ (-want +got)\n%s", diff)
	}
	if sizes := slices.Sorted(maps.Values(threads)); !slices.Equal(sizes, []int{1, 6}) {
		t.Errorf("the mails are in threads of %v, want one of the workload's six, and one of its extension", sizes)
	}
}

// tellInOrder compares what the mails say, in words.
func (c *timed) tellInOrder(t *testing.T, mails []mailed, first, moved time.Time) {
	t.Helper()
	students := &v1alpha1.Department{}
	students.Name = "h2-students"
	if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(students), students); err != nil {
		t.Fatal(err)
	}
	zone, err := time.LoadLocation(students.Spec.Notices.TimeZone)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		subject string
		end     time.Time
	}{
		{"in 24 Stunden", first},
		{"in 4 Stunden", first},
		{"Genehmigt", moved},
		{"in 24 Stunden", moved},
		{"in 4 Stunden", moved},
		{"in 30 Minuten", moved},
		{"gestoppt", time.Time{}},
	}
	if len(mails) != len(want) {
		t.Fatalf("there are %d mails, want %d: %+v", len(mails), len(want), mails)
	}
	for i, m := range mails {
		if m.Problem != "" || m.Text == "" || !strings.HasPrefix(m.HTML, "<!DOCTYPE html>") {
			t.Errorf("mail %d is not whole: %+v", m.Number, m)
		}
		if !strings.Contains(m.Subject, want[i].subject) || !strings.Contains(m.Subject, "training") {
			t.Errorf("mail %d is about %q, want %q", i+1, m.Subject, want[i].subject)
		}
		if end := want[i].end; !end.IsZero() {
			clockTime, day := end.In(zone).Format("15:04"), end.In(zone).Format("2. ")
			if !strings.Contains(m.Subject, clockTime) || !strings.Contains(m.Text, clockTime+" Uhr") || !strings.Contains(m.Text, day) {
				t.Errorf("mail %d does not tell %s:\n%s\n%s", i+1, end.In(zone), m.Subject, m.Text)
			}
			raw := c.run(t, "mail", "show", strconv.Itoa(m.Number), "--raw")
			if warns := strings.HasPrefix(want[i].subject, "in "); warns && !strings.Contains(raw, "DTEND:"+end.UTC().Format("20060102T150405Z")) {
				t.Errorf("mail %d has no appointment at %s:\n%s", i+1, end.UTC(), raw)
			}
		}
	}
}

// areTheNotices checks that each Notice about the namespace is one mail, which was not
// sent before it was due.
func (c *timed) areTheNotices(t *testing.T, ns string, mails []mailed) {
	t.Helper()
	sent, wanted := map[string]int{}, map[string]int{}
	for _, m := range mails {
		sent[m.MessageID]++
	}
	c.await(t, func() error {
		for _, n := range c.told(t, ns) {
			if n.Status.Phase != v1alpha1.NoticeSent {
				return errNotYet(n.Name+" is sent", n.Status.Phase)
			}
		}
		return nil
	})
	for _, n := range c.told(t, ns) {
		if n.Spec.Recipient.Email != "owner@example.org" {
			continue
		}
		wanted[n.Status.MessageID]++
		if n.Status.SentAt.Before(&n.Spec.DueAt) {
			t.Errorf("%s was sent at %s, before it was due at %s", n.Name, n.Status.SentAt, n.Spec.DueAt)
		}
		if n.Status.Attempts != 1 {
			t.Errorf("%s was tried %d times", n.Name, n.Status.Attempts)
		}
	}
	if diff := cmp.Diff(wanted, sent); diff != "" {
		t.Errorf("mails and notices differ (-notices +mails)\n%s", diff)
	}
}
