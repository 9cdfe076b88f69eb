// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-message"
	"github.com/emersion/go-message/mail"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// sinkMail is a mail in the output of `sluice mail show --output json`.
type sinkMail struct {
	Number                                   int
	To, Subject, MessageID, Text, HTML, File string
	Problem                                  string
	Attachments                              []struct{ Name, Type string }
}

// listMails returns the headers of all mails that the cluster sent.
func (s *sluiceCluster) listMails(t testing.TB) []sinkMail {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), s.binary, "mail", "list", "--dir", s.dir, "--output", "json").Output()
	var result struct{ Mails []sinkMail }
	if err == nil {
		err = json.Unmarshal(out, &result)
	}
	if err != nil {
		t.Fatalf("sluice mail list: %v: %s", err, out)
	}
	return result.Mails
}

// listMailsTo returns the mails to an address in the order of their delivery.
func (c *policyTimeCluster) listMailsTo(t *testing.T, address string) (list []sinkMail) {
	t.Helper()
	var result struct{ Mails []sinkMail }
	out := c.runSluice(t, "mail", "list", "--to", address, "--output", "json")
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, m := range result.Mails {
		out := c.runSluice(t, "mail", "show", strconv.Itoa(m.Number), "--output", "json")
		if err := json.Unmarshal([]byte(out), &m); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		list = append(list, m)
	}
	return list
}

// waitForMails waits until at least n mails to the address were delivered.
func (c *policyTimeCluster) waitForMails(t *testing.T, address string, n int) (list []sinkMail) {
	t.Helper()
	c.eventuallyAfterStep(t, func() error {
		if list = c.listMailsTo(t, address); len(list) < n {
			return unexpectedState(fmt.Sprintf("%s has %d mails", address, n), len(list))
		}
		return nil
	})
	return list
}

// The owner of a workload gets each mail about it once and in order, with the deadline that
// applies when the mail is sent.
func TestWorkloadMail(t *testing.T) {
	const ns, owner = "mailed", "mailed-owner@example.org"
	c := newPolicyTimeCluster(t)
	c.createGoverned(t, newProject(ns, func(p *v1alpha1.Project) {
		p.Spec.Owners[0].Email, p.Spec.NodePools = owner, []v1alpha1.PoolQuota{newPoolQuota("dgx-mig", "500m", "1")}
	}))
	job := newJobWorkload(ns, "training", migDevice)
	c.startWorkloads(t, job)

	first := c.deadline(t, job)
	c.advanceTimeTo(t, first.Add(-24*time.Hour))
	c.waitForMails(t, owner, 1)
	c.advanceTimeTo(t, first.Add(-4*time.Hour))
	c.waitForMails(t, owner, 2)
	c.runSluice(t, "extend", "job/training", "-n", ns, "--by", "24h", "--reason", "two epochs are left")
	c.waitForMails(t, owner, 3)
	moved := c.waitForClock(t, job, "has a later deadline", func(s *v1alpha1.WorkloadClockStatus) bool {
		return s.Deadline != nil && s.Deadline.At.After(first)
	}).Deadline.At.Time
	for i, lead := range universityLeads {
		c.advanceTimeTo(t, moved.Add(-lead))
		c.waitForMails(t, owner, 4+i)
	}
	c.advanceTimeTo(t, moved)
	c.assertStopped(t, v1alpha1.EndMaxRuntime, 72*time.Hour, job)
	mails := c.waitForMails(t, owner, 7)

	c.assertMailOrder(t, mails, first, moved)
	c.assertSingleAppointment(t, owner, first, moved)
	c.assertMailsMatchNotices(t, ns, owner, mails)
}

// assertSingleAppointment checks that all warnings update one appointment with the deadline,
// in one thread with the mail about the end.
func (c *policyTimeCluster) assertSingleAppointment(t *testing.T, owner string, first, moved time.Time) {
	t.Helper()
	var got []calendarEvent
	threads := map[string]int{}
	for _, m := range c.readMailsTo(t, owner) {
		got = append(got, m.events...)
		threads[m.references]++
	}
	if len(got) == 0 {
		t.Fatal("no mail has an appointment")
	}
	var want []calendarEvent
	for i, end := range []time.Time{first, first, moved, moved, moved} {
		sequence := "0"
		if i >= 2 {
			sequence = "1"
		}
		want = append(want, calendarEvent{uid: got[0].uid, sequence: sequence, end: end.UTC().Format(calendarTime), status: "CONFIRMED"})
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(calendarEvent{})); diff != "" {
		t.Errorf("the appointments in the mails differ (-want +got)\n%s", diff)
	}
	if sizes := slices.Sorted(maps.Values(threads)); !slices.Equal(sizes, []int{1, 6}) {
		t.Errorf("the threads have %v mails, want one mail about the extension and six about the workload", sizes)
	}
}

// assertMailOrder compares the subjects and deadlines of the mails.
func (c *policyTimeCluster) assertMailOrder(t *testing.T, mails []sinkMail, first, moved time.Time) {
	t.Helper()
	students := &v1alpha1.Department{}
	students.Name = "h2-students"
	if err := c.adminClient.Get(t.Context(), client.ObjectKeyFromObject(students), students); err != nil {
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
		t.Fatalf("got %d mails, want %d: %+v", len(mails), len(want), mails)
	}
	for i, m := range mails {
		if m.Problem != "" || m.Text == "" || !strings.HasPrefix(m.HTML, "<!DOCTYPE html>") {
			t.Errorf("mail %d is incomplete: %+v", m.Number, m)
		}
		if !strings.Contains(m.Subject, want[i].subject) || !strings.Contains(m.Subject, "training") {
			t.Errorf("mail %d has the subject %q, want %q", i+1, m.Subject, want[i].subject)
		}
		if end := want[i].end; !end.IsZero() {
			clockTime, day := end.In(zone).Format("15:04"), end.In(zone).Format("2. ")
			if !strings.Contains(m.Subject, clockTime) || !strings.Contains(m.Text, clockTime+" Uhr") || !strings.Contains(m.Text, day) {
				t.Errorf("mail %d does not contain the deadline %s:\n%s\n%s", i+1, end.In(zone), m.Subject, m.Text)
			}
			raw := c.runSluice(t, "mail", "show", strconv.Itoa(m.Number), "--raw")
			if warns := strings.HasPrefix(want[i].subject, "in "); warns && !strings.Contains(raw, "DTEND:"+end.UTC().Format("20060102T150405Z")) {
				t.Errorf("mail %d has no appointment at %s:\n%s", i+1, end.UTC(), raw)
			}
		}
	}
}

// assertMailsMatchNotices checks that each Notice about the namespace was sent as one mail,
// and not before it was due.
func (c *policyTimeCluster) assertMailsMatchNotices(t *testing.T, ns, owner string, mails []sinkMail) {
	t.Helper()
	sent, expected := map[string]int{}, map[string]int{}
	for _, m := range mails {
		sent[m.MessageID]++
	}
	c.eventuallyAfterStep(t, func() error {
		for _, n := range c.listNotices(t, ns) {
			if n.Status.Phase != v1alpha1.NoticeSent {
				return unexpectedState(n.Name+" has the phase Sent", n.Status.Phase)
			}
		}
		return nil
	})
	for _, n := range c.listNotices(t, ns) {
		if string(n.Spec.Recipient.Email) != owner {
			continue
		}
		expected[n.Status.MessageID]++
		if n.Status.SentAt.Before(&n.Spec.DueAt) {
			t.Errorf("%s was sent at %s, before it was due at %s", n.Name, n.Status.SentAt, n.Spec.DueAt)
		}
		if n.Status.Attempts != 1 {
			t.Errorf("%s had %d delivery attempts", n.Name, n.Status.Attempts)
		}
	}
	if diff := cmp.Diff(expected, sent); diff != "" {
		t.Errorf("mails and notices differ (-notices +mails)\n%s", diff)
	}
}

// mailMessage is a mail as the mail program of its recipient parses it.
type mailMessage struct {
	subject, messageID, language, text, html string
	// references are the Message-IDs in the header References, with angle brackets.
	references string
	// method is the method of the calendar; empty without a calendar.
	method string
	events []calendarEvent
}

// calendarTime is the layout of a time in a calendar.
const calendarTime = "20060102T150405Z"

// calendarEvent is an appointment in a mail.
type calendarEvent struct{ uid, sequence, end, status string }

// readMailsTo parses the files of the mail sink that were sent to an address, in order.
func (c *policyTimeCluster) readMailsTo(t *testing.T, address string) (list []mailMessage) {
	t.Helper()
	for _, m := range c.listMails(t) {
		if m.To == address {
			list = append(list, parseMail(t, []byte(c.runSluice(t, "mail", "show", m.File, "--raw"))))
		}
	}
	return list
}

func parseMail(t *testing.T, raw []byte) (m mailMessage) {
	t.Helper()
	whole, err := message.Read(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%v:\n%s", err, raw)
	}
	h := mail.Header{Header: whole.Header}
	m.messageID, m.references, m.language = h.Get("Message-ID"), h.Get("References"), h.Get("Content-Language")
	if m.subject, err = h.Subject(); err != nil {
		t.Errorf("%v:\n%s", err, raw)
	}
	if err := m.parsePart(whole); err != nil {
		t.Errorf("%v:\n%s", err, raw)
	}
	return m
}

// parsePart collects the texts and the calendar of a part.
func (m *mailMessage) parsePart(part *message.Entity) error {
	if parts := part.MultipartReader(); parts != nil {
		for {
			next, err := parts.NextPart()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := m.parsePart(next); err != nil {
				return err
			}
		}
	}
	body, err := io.ReadAll(part.Body)
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(string(body), "\r\n", "\n")
	kind, _, err := part.Header.ContentType()
	switch kind {
	case "text/plain":
		m.text = text
	case "text/html":
		m.html = text
	case "text/calendar":
		m.parseCalendar(strings.ReplaceAll(text, "\n ", ""))
	}
	return err
}

// parseCalendar parses the appointments line by line.
func (m *mailMessage) parseCalendar(text string) {
	for line := range strings.Lines(text) {
		property, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if property == "BEGIN" && value == "VEVENT" {
			m.events = append(m.events, calendarEvent{})
			continue
		}
		if property == "METHOD" {
			m.method = value
		}
		if len(m.events) == 0 {
			continue
		}
		event := &m.events[len(m.events)-1]
		switch property {
		case "UID":
			event.uid = value
		case "SEQUENCE":
			event.sequence = value
		case "DTEND":
			event.end = value
		case "STATUS":
			event.status = value
		}
	}
}
