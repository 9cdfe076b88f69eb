// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sluice.dev/api/v1alpha1"
)

// unfoldLines unfolds the content lines of a calendar (RFC 5545).
func unfoldLines(t testing.TB, raw string) []string {
	t.Helper()
	if !strings.HasSuffix(raw, "\r\n") {
		t.Fatalf("no end of the last line: %q", raw)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(raw, "\r\n"), "\r\n") {
		if len(line) > maxCalendarLineOctets || strings.ContainsAny(line, "\r\n") || !utf8.ValidString(line) {
			t.Errorf("a line of %d octets: %q", len(line), line)
		}
	}
	return strings.Split(strings.TrimSuffix(strings.ReplaceAll(raw, "\r\n ", ""), "\r\n"), "\r\n")
}

// unescapeText unescapes a value of the type TEXT.
func unescapeText(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
			if s[i] == 'n' || s[i] == 'N' {
				b.WriteByte('\n')
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func parseCalendar(t *testing.T, l ComposeRequest) []string {
	t.Helper()
	return unfoldLines(t, parseMail(t, mustCompose(t, l).Bytes).parts["text/calendar"])
}

func TestCalendar(t *testing.T) {
	lines := parseCalendar(t, Examples()[1]) // WorkloadEnding in English
	want := []string{
		"BEGIN:VCALENDAR", "VERSION:2.0", "METHOD:PUBLISH", "BEGIN:VEVENT", "SEQUENCE:2", "DTSTAMP:20261122T111403Z",
		"DTSTART:20261123T105900Z", "DTEND:20261123T111400Z", "STATUS:CONFIRMED", "END:VEVENT", "END:VCALENDAR",
		"BEGIN:VALARM", "ACTION:DISPLAY", "TRIGGER;RELATED=END:-PT1H", "END:VALARM",
	}
	for _, line := range want {
		if !slices.Contains(lines, line) {
			t.Errorf("no line %q in\n%s", line, strings.Join(lines, "\n"))
		}
	}
}

// Durations count from when the mail is sent, and a calendar entry, which is read days later, has
// none.
func TestRelativeTimes(t *testing.T) {
	for _, l := range Examples() {
		if l.Notice.Spec.Deadline == nil {
			continue
		}
		t.Run(l.Notice.Name, func(t *testing.T) {
			l.Now = l.Notice.Spec.Deadline.Add(-7 * time.Hour)
			words := "in 7 hours"
			if l.Notice.Spec.Recipient.Language == v1alpha1.LanguageGerman {
				words = "in 7 Stunden"
			}
			m := mustCompose(t, l)
			if !strings.Contains(m.Text, words) {
				t.Skip("its text has no duration")
			}
			if entry := strings.Join(parseCalendar(t, l), "\n"); strings.Contains(entry, words) {
				t.Errorf("the calendar entry says %q:\n%s", words, entry)
			}
			l.Now = l.Notice.Spec.Deadline.Add(time.Hour)
			if m := mustCompose(t, l); strings.Contains(m.Text, words) {
				t.Errorf("after the deadline it says %q", words)
			}
		})
	}
}

// The command in a mail requests what the department grants at once.
func TestExtensionCommandUsesDepartmentsLimit(t *testing.T) {
	for text, want := range map[string]string{"12h": "--by 12h ", "2d": "--by 2d ", "": "--by 24h ", "1h; reboot": "--by 24h "} {
		l := Examples()[1] // WorkloadEnding in English
		l.Notice = l.Notice.DeepCopy()
		l.Notice.Spec.Inputs[InputMaxDuration] = text
		if m := mustCompose(t, l); !strings.Contains(m.Text, want) {
			t.Errorf("%q: no %q in\n%s", text, want, m.Text)
		}
	}
}

func TestCalendarCanceledAppointment(t *testing.T) {
	l := Examples()[1]
	before := parseCalendar(t, l)
	l.Canceled, l.Sequence = true, 3
	after := parseCalendar(t, l)
	for _, line := range []string{"METHOD:CANCEL", "STATUS:CANCELLED", "SEQUENCE:3"} {
		if !slices.Contains(after, line) {
			t.Errorf("no line %q in\n%s", line, strings.Join(after, "\n"))
		}
	}
	uid := func(lines []string) string {
		return lines[slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "UID:") })]
	}
	if uid(before) != uid(after) {
		t.Errorf("UID %q became %q", uid(before), uid(after))
	}
	// A canceled appointment has no deadline; the UID is enough.
	l = Examples()[1]
	l.Notice.Spec.Kind, l.Notice.Spec.Deadline, l.Canceled = v1alpha1.NoticeProjectRenewed, nil, true
	if lines := parseCalendar(t, l); uid(lines) != uid(before) ||
		slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(s, "DTSTART") }) {
		t.Errorf("without a deadline:\n%s", strings.Join(lines, "\n"))
	}
	if m := mustCompose(t, l); !strings.Contains(m.Text, "the attachment removes it from your") ||
		!strings.Contains(string(m.Bytes), "method=CANCEL") {
		t.Errorf("the mail does not mention it:\n%s", m.Text)
	}
}

func TestCalendarDigest(t *testing.T) {
	for _, l := range Examples() {
		if l.Notice.Name != "digest-two.en" {
			continue
		}
		lines := parseCalendar(t, l)
		var got []string
		for _, line := range lines {
			if strings.HasPrefix(line, "SUMMARY") || strings.HasPrefix(line, "DTEND") {
				got = append(got, line)
			}
		}
		want := []string{
			"DTEND:20261128T230000Z", "SUMMARY:Project thesis-mueller expires soon",
			"DTEND:20261222T230000Z", "SUMMARY:Is project protein-folding still needed?",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		return
	}
	t.Error("there is no such example")
}

func FuzzFoldContentLine(f *testing.F) {
	for _, text := range hostileTexts {
		f.Add(text)
	}
	f.Add(strings.Repeat("€", 80))
	f.Fuzz(func(t *testing.T, text string) {
		lines := unfoldLines(t, foldContentLine("SUMMARY:"+escapeText(text)))
		if len(lines) != 1 {
			t.Fatalf("%d lines: %q", len(lines), lines)
		}
		want := strings.Map(func(r rune) rune {
			if r < ' ' && r != '\t' && r != '\n' || r == 0x7f {
				return -1
			}
			return r
		}, strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.ToValidUTF8(text, "\ufffd")))
		if got := unescapeText(strings.TrimPrefix(lines[0], "SUMMARY:")); got != want {
			t.Errorf("reads %q, want %q", got, want)
		}
	})
}
