// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sluice.dev/api/v1alpha1"
)

// instant is RFC 5545's form of one in UTC. Without local times no description of a
// time zone is needed, and none can be wrong.
const instant = "20060102T150405Z"

// shown is how long before the deadline an appointment begins.
const shown = 15 * time.Minute

func method(l Letter) string {
	if l.Cancelled {
		return "CANCEL"
	}
	return "PUBLISH"
}

// events is the calendar object of a letter; nil where there is nothing to note.
func (l Letter) events(p *Page) []byte {
	noted := []*v1alpha1.Notice{l.Notice}
	if l.Notice.Spec.Kind == v1alpha1.NoticeDigest {
		noted = l.Carried
	}
	var b strings.Builder
	line := func(property, value string) { b.WriteString(contentLine(property + ":" + value)) }
	line("BEGIN", "VCALENDAR")
	line("VERSION", "2.0")
	line("PRODID", "-//sluice.dev//Sluice//"+strings.ToUpper(p.Language))
	line("CALSCALE", "GREGORIAN")
	line("METHOD", method(l))
	seen := map[string]bool{}
	for i, n := range noted {
		if n.Spec.Subject == nil || n.Spec.Deadline == nil && !l.Cancelled || seen[eventUID(n, l.Domain)] {
			continue
		}
		seen[eventUID(n, l.Domain)] = true
		title, text := p.Title, append([]string{p.First}, steps(p.How)...)
		if l.Notice.Spec.Kind == v1alpha1.NoticeDigest {
			title, text = p.Items[i].Title, []string{p.Items[i].Text, p.Items[i].Command}
		}
		l.event(line, n, title, strings.TrimSpace(strings.Join(text, "\n")))
	}
	line("END", "VCALENDAR")
	if len(seen) == 0 {
		return nil
	}
	return []byte(b.String())
}

func (l Letter) event(line func(property, value string), n *v1alpha1.Notice, title, text string) {
	line("BEGIN", "VEVENT")
	line("UID", eventUID(n, l.Domain))
	sequence, ok := l.Sequences[n.Name]
	if !ok {
		sequence = l.Sequence
	}
	line("SEQUENCE", strconv.Itoa(max(0, sequence)))
	line("DTSTAMP", recorded(l.Notice).UTC().Format(instant))
	line("ORGANIZER", "mailto:"+l.contact())
	if n.Spec.Deadline != nil {
		// It ends then, so that a project's last day has it; and is long enough to be
		// seen in a week's view.
		line("DTSTART", n.Spec.Deadline.Add(-shown).UTC().Format(instant))
		line("DTEND", n.Spec.Deadline.UTC().Format(instant))
	}
	line("SUMMARY", escaped(title))
	line("DESCRIPTION", escaped(text))
	line("CLASS", "PUBLIC")
	line("TRANSP", "TRANSPARENT") // its owner is not busy then
	status := "CONFIRMED"
	if l.Cancelled {
		status = "CANCELLED"
	}
	line("STATUS", status)
	line("END", "VEVENT")
}

// steps are the ways to go on, a line each.
func steps(how []Step) (lines []string) {
	for _, s := range how {
		lines = append(lines, s.Text+s.Command)
	}
	return lines
}

var escapes = strings.NewReplacer(`\`, `\\`, ";", `\;`, ",", `\,`, "\r\n", `\n`, "\n", `\n`, "\r", `\n`)

// escaped is a value of the type TEXT.
func escaped(s string) string {
	s = escapes.Replace(strings.ToValidUTF8(s, "\ufffd"))
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}

// octets is how long a line of a calendar may be, without its end.
const octets = 75

// contentLine folds a line, never within a character, and ends it.
func contentLine(s string) string {
	var b strings.Builder
	column := 0
	for _, r := range s {
		size := utf8.RuneLen(r)
		if column+size > octets {
			b.WriteString("\r\n ")
			column = 1
		}
		b.WriteRune(r)
		column += size
	}
	return b.String() + "\r\n"
}
