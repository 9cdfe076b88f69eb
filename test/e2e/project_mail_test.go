// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
)

// The owners of the projects.
var (
	anna  = v1alpha1.Contact{Name: "Änne Müller-Groß", Email: "anna@example.org"}
	oemer = v1alpha1.Contact{Name: "Ömer Faruk Şahin", Email: "oemer@example.org"}
	ben   = v1alpha1.Contact{Name: "Ben", Email: "ben@example.org", Mute: []v1alpha1.OptionalNoticeKind{v1alpha1.OptionalNoticeKind(v1alpha1.NoticeProjectRenewed)}}
)

// projectWithMail is a project with its owners and the mail schedule of its department.
type projectWithMail struct {
	name       string
	department *v1alpha1.Department
	owners     []v1alpha1.Contact
	digests    *notification.DigestSchedule
}

func (c *policyTimeCluster) newMailedProject(t *testing.T, department, name string, owners ...v1alpha1.Contact) *projectWithMail {
	t.Helper()
	p := &projectWithMail{name: name, department: &v1alpha1.Department{}, owners: owners}
	if err := c.adminClient.Get(t.Context(), client.ObjectKey{Name: department}, p.department); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.digests, err = notification.ParseDigestSchedule(p.department.Spec.Notices); err != nil || p.digests == nil {
		t.Fatalf("department %s has no digest: %v", department, err)
	}
	return p
}

// recipients returns the owners with the language and time zone of their department.
func (p *projectWithMail) recipients() []v1alpha1.NoticeRecipient {
	var project v1alpha1.Project
	for _, owner := range p.owners {
		project.Spec.Owners = append(project.Spec.Owners, v1alpha1.Owner{Contact: owner})
	}
	return notification.ProjectRecipients(&project, p.department)
}

// expectedAnnouncement returns what the owners are notified of at a time.
func (p *projectWithMail) expectedAnnouncement(kind v1alpha1.NoticeKind, at, deadline time.Time, inputs ...string) notification.Announcement {
	a := notification.Announcement{
		Kind: kind, Threshold: at.UTC().Format(time.RFC3339), DueAt: at, Deadline: deadline,
		Subject: v1alpha1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Project", Name: p.name, UID: types.UID("uid-of-" + p.name)},
		Inputs:  map[string]string{mail.InputProject: p.name, mail.InputDepartment: p.department.Name},
	}
	for i := 0; i+1 < len(inputs); i += 2 {
		a.Inputs[inputs[i]] = inputs[i+1]
	}
	return a
}

// expectedWarning returns a warning that the last digest before the lead contains.
func (p *projectWithMail) expectedWarning(t *testing.T, kind v1alpha1.NoticeKind, lead string, deadline time.Time, inputs ...string) notification.Announcement {
	t.Helper()
	length := period.MustParseDuration(lead)
	run, day, found := p.digests.LastRun(deadline.Add(-length.Length()))
	if !found {
		t.Fatalf("no digest before %s", deadline)
	}
	a := p.expectedAnnouncement(kind, run, deadline, inputs...)
	a.Lead, a.Digest = length, &day
	return a
}

// announceProjects records each announcement when it is due, and waits until all Notices are
// sent or superseded.
func (c *policyTimeCluster) announceProjects(t *testing.T, announcements map[*projectWithMail]notification.Announcement) {
	t.Helper()
	recorder := notification.Recorder{Client: c.adminClient, Live: c.adminClient}
	var names []string
	for p, a := range announcements {
		if c.clockFile.Now().Before(a.DueAt) {
			c.advanceTimeTo(t, a.DueAt)
		}
		if n, err := recorder.Record(t.Context(), a, p.recipients()); err != nil || n != len(p.owners) {
			t.Fatalf("%d notices of %s: %v", n, a.Kind, err)
		}
		for _, to := range p.recipients() {
			names = append(names, a.NoticeName(to))
		}
	}
	c.eventuallyAfterStep(t, func() error {
		for _, name := range names {
			n := &v1alpha1.Notice{}
			if err := c.adminClient.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
				return err
			}
			if n.Status.Phase != v1alpha1.NoticeSent && n.Status.Phase != v1alpha1.NoticeSuperseded {
				return unexpectedState(name+" is sent or superseded", n.Status)
			}
		}
		return nil
	})
}

// The owners of a project get each mail about it: the warnings of a day in one digest, each
// deadline in local time and in their language, in one thread for each project, and as one
// appointment that is updated and canceled.
func TestProjectMail(t *testing.T) {
	c := newPolicyTimeCluster(t)
	thesis := c.newMailedProject(t, "h2-students", "thesis-gross", anna, oemer)
	course := c.newMailedProject(t, "h2-students", "course-ml2", anna)
	folding := c.newMailedProject(t, "h2-research", "folding-two", ben)

	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	year := c.clockFile.Now().In(zone).Year() + 1
	day := func(month time.Month, day int) time.Time { return time.Date(year, month, day, 24, 0, 0, 0, zone) }
	// Daylight saving time begins between the first two and the others.
	expiry, suspension, deletion := day(time.March, 20), day(time.April, 3), day(time.April, 19)
	confirm, renewed := day(time.March, 24), day(time.April, 12)
	expiryInputs := []string{mail.InputExpiredAt, formatInput(expiry), mail.InputDeleteAt, formatInput(deletion)}
	plannedInputs := []string{mail.InputSuspendAt, formatInput(suspension), mail.InputDeleteAt, formatInput(deletion)}
	type announcements = map[*projectWithMail]notification.Announcement

	expiring := func(lead string) notification.Announcement {
		return thesis.expectedWarning(t, v1alpha1.NoticeProjectExpiring, lead, expiry, plannedInputs...)
	}
	first := expiring("30d")
	confirmation := course.expectedWarning(t, v1alpha1.NoticeProjectConfirm, "30d", confirm)
	confirmation.DueAt, confirmation.Digest = first.DueAt, first.Digest
	c.announceProjects(t, announcements{thesis: first, course: confirmation, folding: folding.expectedWarning(t, v1alpha1.NoticeProjectExpiring, "30d", expiry)})
	c.announceProjects(t, announcements{
		course:  course.expectedAnnouncement(v1alpha1.NoticeProjectRenewed, first.DueAt.Add(48*time.Hour), renewed, mail.InputRenewedBy, string(anna.Email)),
		folding: folding.expectedAnnouncement(v1alpha1.NoticeProjectRenewed, first.DueAt.Add(48*time.Hour), renewed),
	})
	second := expiring("7d")
	renewedWarning := course.expectedWarning(t, v1alpha1.NoticeProjectExpiring, "30d", renewed)
	if !renewedWarning.DueAt.Equal(second.DueAt) {
		t.Fatalf("the two warnings are due at %s and %s, want one day", second.DueAt, renewedWarning.DueAt)
	}
	c.announceProjects(t, announcements{thesis: second, course: renewedWarning})
	c.announceProjects(t, announcements{course: course.expectedAnnouncement(v1alpha1.NoticeProjectRenewed, second.DueAt.Add(48*time.Hour), time.Time{})})
	c.announceProjects(t, announcements{thesis: expiring("1d")})
	c.announceProjects(t, announcements{thesis: thesis.expectedAnnouncement(v1alpha1.NoticeProjectExpired, expiry, suspension, expiryInputs...)})
	c.announceProjects(t, announcements{thesis: thesis.expectedWarning(t, v1alpha1.NoticeProjectSuspending, "7d", suspension, append(expiryInputs, mail.InputRunning, "3")...)})
	c.announceProjects(t, announcements{thesis: thesis.expectedAnnouncement(v1alpha1.NoticeProjectSuspended, suspension, deletion, append(expiryInputs, mail.InputStopped, "3")...)})
	c.announceProjects(t, announcements{thesis: thesis.expectedWarning(t, v1alpha1.NoticeProjectDeletion, "7d", deletion, expiryInputs...)})
	c.announceProjects(t, announcements{thesis: thesis.expectedAnnouncement(v1alpha1.NoticeProjectDeletion, deletion, deletion, expiryInputs...)})
	deleted := deletion.Add(34 * time.Hour)
	c.announceProjects(t, announcements{thesis: thesis.expectedAnnouncement(v1alpha1.NoticeProjectDeleted, deleted, time.Time{},
		mail.InputDeletedAt, formatInput(deleted), mail.InputApprovedBy, "dept-admin@h2.example", mail.InputRemoved, "Job=3", mail.InputKept, "PersistentVolumeClaim=2")})

	at := func(p, sequence string, end time.Time) appointment {
		return appointment{p, sequence, end.UTC().Format(calendarTime), "CONFIRMED"}
	}
	canceled := func(p, sequence string) []appointment {
		return []appointment{{p, sequence, "", "CANCELLED"}}
	}
	germanMails := func(withCourse bool) []expectedMail {
		mails := []expectedMail{
			{Digest: true, Method: "PUBLISH", Events: []appointment{at("thesis-gross", "0", expiry)}, Phrases: []string{formatGermanDay(expiry), "thesis-gross läuft bald ab"}},
			{About: "course-ml2", Method: "PUBLISH", Events: []appointment{at("course-ml2", "1", renewed)}, Phrases: []string{formatGermanDay(renewed), "hat das Projekt verlängert"}},
			{Digest: true, Method: "PUBLISH", Events: []appointment{at("thesis-gross", "0", expiry)}, Phrases: []string{formatGermanDay(expiry)}},
			{About: "course-ml2", Method: "CANCEL", Events: canceled("course-ml2", "2"), Phrases: []string{"unbefristet gültig"}},
			{Digest: true, Method: "PUBLISH", Events: []appointment{at("thesis-gross", "0", expiry)}, Phrases: []string{formatGermanDay(expiry)}},
			{About: "thesis-gross", Method: "PUBLISH", Events: []appointment{at("thesis-gross", "1", suspension)}, Phrases: []string{formatGermanDay(expiry), formatGermanDay(suspension), formatGermanDay(deletion)}},
			{Digest: true, Method: "PUBLISH", Events: []appointment{at("thesis-gross", "1", suspension)}, Phrases: []string{formatGermanDay(suspension)}},
			{About: "thesis-gross", Method: "PUBLISH", Events: []appointment{at("thesis-gross", "2", deletion)}, Phrases: []string{formatGermanDay(expiry), formatGermanDay(deletion)}},
			{Digest: true, Method: "PUBLISH", Events: []appointment{at("thesis-gross", "2", deletion)}, Phrases: []string{formatGermanDay(deletion)}},
			{About: "thesis-gross", Method: "PUBLISH", Events: []appointment{at("thesis-gross", "2", deletion)}, Phrases: []string{formatGermanDay(deletion)}},
			{About: "thesis-gross", Method: "CANCEL", Events: canceled("thesis-gross", "3"), Phrases: []string{"10:00 Uhr MESZ", "dept-admin@h2.example"}},
		}
		if !withCourse {
			return slices.DeleteFunc(mails, func(m expectedMail) bool { return m.About == course.name })
		}
		mails[0].Events = append(mails[0].Events, at("course-ml2", "0", confirm))
		mails[0].Phrases = append(mails[0].Phrases, formatGermanDay(confirm), "Wird Projekt course-ml2 noch gebraucht?")
		mails[2].Events = append(mails[2].Events, at("course-ml2", "1", renewed))
		mails[2].Phrases = append(mails[2].Phrases, formatGermanDay(renewed), "Projekt course-ml2 läuft bald ab")
		return mails
	}
	c.assertMails(t, anna, "de", germanMails(true))
	c.assertMails(t, oemer, "de", germanMails(false))
	c.assertMails(t, ben, "en", []expectedMail{
		{Digest: true, Method: "PUBLISH", Events: []appointment{at("folding-two", "0", expiry)}, Phrases: []string{expiry.Add(-time.Hour).Format("Monday, 2 January 2006, ") + "24:00 CET"}},
	})
}

// formatInput formats a time as an input of a Notice.
func formatInput(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// formatGermanDay formats the end of a day as in a German mail.
func formatGermanDay(midnight time.Time) string {
	day := midnight.Add(-12 * time.Hour)
	weekdays := []string{"Sonntag", "Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag"}
	months := map[time.Month]string{time.March: "März", time.April: "April"}
	zone := "MEZ"
	if midnight.IsDST() {
		zone = "MESZ"
	}
	return fmt.Sprintf("%s, %d. %s %d, 24:00 Uhr %s", weekdays[day.Weekday()], day.Day(), months[day.Month()], day.Year(), zone)
}

// appointment is an appointment in a mail, with the name of its project.
type appointment struct{ Project, Sequence, End, Status string }

// expectedMail is the expected content of a mail. A mail that is not a digest is about one
// project.
type expectedMail struct {
	Digest bool
	About  string
	Method string
	Events []appointment
	// Phrases occur in the text and in the HTML.
	Phrases []string
}

// assertMails compares the mails to a recipient, in order, with the expected ones and with
// their Notices.
func (c *policyTimeCluster) assertMails(t *testing.T, recipient v1alpha1.Contact, language string, want []expectedMail) {
	t.Helper()
	var list v1alpha1.NoticeList
	if err := c.adminClient.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	subjects, ofDigest := c.groupByMail(t, recipient, list.Items)
	mails := c.readMailsTo(t, string(recipient.Email))
	threads, uids := map[string]string{}, map[string]string{} // of projects
	for i, m := range mails {
		if i >= len(want) {
			t.Errorf("unexpected mail to %s: %s", recipient.Email, m.subject)
			continue
		}
		got := expectedMail{Digest: ofDigest[m.messageID], Method: m.method, Phrases: want[i].Phrases}
		projects := subjects[m.messageID]
		if !got.Digest {
			got.About = strings.Join(projects, " ")
		}
		for _, e := range m.events {
			project := uids[e.uid]
			if project == "" { // the first event of its project; events are ordered by deadline
				known := slices.Collect(maps.Values(uids))
				if at := slices.IndexFunc(projects, func(p string) bool { return !slices.Contains(known, p) }); at >= 0 {
					project = projects[at]
				}
				uids[e.uid] = project
			}
			got.Events = append(got.Events, appointment{project, e.sequence, e.end, e.status})
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("mail %d to %s, %q (-want +got)\n%s", i+1, recipient.Email, m.subject, diff)
		}
		if previous, known := threads[got.About]; known && previous != m.references || (m.references == "") != got.Digest {
			t.Errorf("mail %d to %s, %q, references %q; the previous mail of the thread references %q", i+1, recipient.Email, m.subject, m.references, previous)
		}
		threads[got.About] = m.references
		text, html := normalizeText(m.text), normalizeText(htmlTag.ReplaceAllString(m.html, " "))
		for _, phrase := range want[i].Phrases {
			if !strings.Contains(text, normalizeText(phrase)) || !strings.Contains(html, normalizeText(phrase)) {
				t.Errorf("mail %d to %s, %q, does not contain %q:\n%s", i+1, recipient.Email, m.subject, phrase, m.text)
			}
		}
		if m.language != language || !strings.Contains(m.text, string(recipient.Name)) {
			t.Errorf("mail %d to %s has the language %q and begins with\n%s", i+1, recipient.Email, m.language, m.text[:min(80, len(m.text))])
		}
	}
	if len(mails) != len(want) {
		t.Errorf("%s has %d mails, want %d", recipient.Email, len(mails), len(want))
	}
}

// htmlTag matches an HTML tag.
var htmlTag = regexp.MustCompile(`<[^>]*>`)

// normalizeText removes line breaks and commas, which replace line breaks in the HTML.
func normalizeText(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, ",", " ")), " ")
}

// noticeDeadline returns the deadline of a Notice, or a late time without a deadline, which
// sorts last.
func noticeDeadline(n *v1alpha1.Notice) time.Time {
	if n.Spec.Deadline == nil {
		return n.Spec.DueAt.AddDate(100, 0, 0)
	}
	return n.Spec.Deadline.Time
}

// groupByMail returns the projects of each mail to a recipient by Message-ID, ordered by
// deadline, and which mails are digests. It checks that each Notice was sent when due or
// later, together with its digest if it has one, and that there is one digest a day.
func (c *policyTimeCluster) groupByMail(t *testing.T, recipient v1alpha1.Contact, all []v1alpha1.Notice) (subjects map[string][]string, digests map[string]bool) {
	t.Helper()
	subjects, digests = map[string][]string{}, map[string]bool{}
	slices.SortFunc(all, func(a, b v1alpha1.Notice) int { // ordered by deadline
		return noticeDeadline(&a).Compare(noticeDeadline(&b))
	})
	byName, days := map[string]*v1alpha1.Notice{}, map[period.Date]bool{}
	for i := range all {
		byName[all[i].Name] = &all[i]
	}
	for i := range all {
		n := &all[i]
		if n.Spec.Recipient.Email != recipient.Email {
			continue
		}
		muted := slices.Contains(recipient.Mute, v1alpha1.OptionalNoticeKind(n.Spec.Kind))
		switch {
		case muted:
			if n.Status.Phase != v1alpha1.NoticeSuperseded || n.Status.Attempts != 0 {
				t.Errorf("%s, which %s has muted, has the phase %s after %d attempts", n.Name, recipient.Email, n.Status.Phase, n.Status.Attempts)
			}
			continue
		case n.Status.Phase != v1alpha1.NoticeSent || n.Status.SentAt == nil || n.Status.SentAt.Before(&n.Spec.DueAt):
			t.Errorf("%s, due at %s, has the status %+v", n.Name, n.Spec.DueAt, n.Status)
		case n.Spec.Kind == v1alpha1.NoticeDigest:
			if days[*n.Spec.Date] || n.Name != notification.DigestName(recipient.Email, *n.Spec.Date) {
				t.Errorf("%s is not the digest of %s", n.Name, n.Spec.Date)
			}
			days[*n.Spec.Date], digests[n.Status.MessageID] = true, true
			continue
		case n.Spec.Digest != "":
			digest := byName[n.Spec.Digest]
			if digest == nil || digest.Status.MessageID != n.Status.MessageID || !digest.Status.SentAt.Equal(n.Status.SentAt) || n.Status.Attempts != 0 {
				t.Errorf("%s was not sent with its digest: %+v", n.Name, n.Status)
			}
		}
		subjects[n.Status.MessageID] = append(subjects[n.Status.MessageID], n.Spec.Subject.Name)
	}
	return subjects, digests
}
