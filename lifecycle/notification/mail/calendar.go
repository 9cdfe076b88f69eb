// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sluice.dev/api/v1alpha1"
)

// calendarTimeLayout is the UTC form of RFC 5545. UTC needs no time zone definition.
const calendarTimeLayout = "20060102T150405Z"

// appointmentLength is the duration of an appointment, which ends at the deadline.
const appointmentLength = 15 * time.Minute

func calendarMethod(l ComposeRequest) string {
	if l.Canceled {
		return "CANCEL"
	}
	return "PUBLISH"
}

// renderCalendar returns the iCalendar object of a mail; nil for none.
func (l ComposeRequest) renderCalendar(p *TemplateData) []byte {
	noted := []*v1alpha1.Notice{l.Notice}
	if l.Notice.Spec.Kind == v1alpha1.NoticeDigest {
		noted = l.Carried
	}
	var b strings.Builder
	line := func(property, value string) { b.WriteString(foldContentLine(property + ":" + value)) }
	line("BEGIN", "VCALENDAR")
	line("VERSION", "2.0")
	line("PRODID", "-//sluice.dev//Sluice//"+strings.ToUpper(p.Language))
	line("CALSCALE", "GREGORIAN")
	line("METHOD", calendarMethod(l))
	known := map[string]bool{}
	for i, n := range noted {
		if n.Spec.Subject == nil || n.Spec.Deadline == nil && !l.Canceled || known[eventUID(n, l.Domain)] {
			continue
		}
		known[eventUID(n, l.Domain)] = true
		title, text := p.Title, append([]string{p.Summary}, stepLines(p.How)...)
		if l.Notice.Spec.Kind == v1alpha1.NoticeDigest {
			title, text = p.Items[i].Title, []string{p.Items[i].Text, p.Items[i].Command}
		}
		l.renderEvent(line, n, title, strings.TrimSpace(strings.Join(text, "\n")))
	}
	line("END", "VCALENDAR")
	if len(known) == 0 {
		return nil
	}
	return []byte(b.String())
}

func (l ComposeRequest) renderEvent(line func(property, value string), n *v1alpha1.Notice, title, text string) {
	line("BEGIN", "VEVENT")
	line("UID", eventUID(n, l.Domain))
	sequence, ok := l.Sequences[n.Name]
	if !ok {
		sequence = l.Sequence
	}
	line("SEQUENCE", strconv.Itoa(max(0, sequence)))
	line("DTSTAMP", recordedAt(l.Notice).UTC().Format(calendarTimeLayout))
	line("ORGANIZER", "mailto:"+l.contactAddress())
	if n.Spec.Deadline != nil {
		// The appointment ends at the deadline, so it lies on a project's last day, and is
		// long enough for a week view.
		line("DTSTART", n.Spec.Deadline.Add(-appointmentLength).UTC().Format(calendarTimeLayout))
		line("DTEND", n.Spec.Deadline.UTC().Format(calendarTimeLayout))
	}
	line("SUMMARY", escapeText(title))
	line("DESCRIPTION", escapeText(text))
	line("CLASS", "PUBLIC")
	line("TRANSP", "TRANSPARENT") // its owner is not busy then
	status := "CONFIRMED"
	if l.Canceled {
		status = "CANCELLED"
	}
	line("STATUS", status)
	if n.Spec.Deadline != nil && !l.Canceled {
		line("BEGIN", "VALARM")
		line("ACTION", "DISPLAY")
		line("DESCRIPTION", escapeText(title))
		line("TRIGGER;RELATED=END", alarmTrigger(n.Spec.Kind))
		line("END", "VALARM")
	}
	line("END", "VEVENT")
}

// alarmTrigger returns how long before the deadline a calendar reminds: an hour, and for a project,
// which ends at the end of a day, that morning at nine.
func alarmTrigger(kind v1alpha1.NoticeKind) string {
	if strings.HasPrefix(string(kind), "Project") {
		return "-PT15H"
	}
	return "-PT1H"
}

// stepLines returns the next steps, one a line.
func stepLines(how []Step) (lines []string) {
	for _, s := range how {
		lines = append(lines, s.Text+s.Command)
	}
	return lines
}

var textEscaper = strings.NewReplacer(`\`, `\\`, ";", `\;`, ",", `\,`, "\r\n", `\n`, "\n", `\n`, "\r", `\n`)

// escapeText escapes a value of the type TEXT.
func escapeText(s string) string {
	s = textEscaper.Replace(strings.ToValidUTF8(s, "\ufffd"))
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}

// maxCalendarLineOctets bounds a content line without its line break.
const maxCalendarLineOctets = 75

// foldContentLine folds a content line between characters and appends the line break.
func foldContentLine(s string) string {
	var b strings.Builder
	column := 0
	for _, r := range s {
		size := utf8.RuneLen(r)
		if column+size > maxCalendarLineOctets {
			b.WriteString("\r\n ")
			column = 1
		}
		b.WriteRune(r)
		column += size
	}
	return b.String() + "\r\n"
}
