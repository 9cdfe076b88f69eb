// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"sluice.dev/api/v1alpha1"
)

var hostileTexts = map[string]string{
	"CRLF":          "x\r\nBcc: victim@example.org\r\n\r\n<h1>body</h1>",
	"LF":            "x\nBcc: victim@example.org",
	"CR":            "x\rBcc: victim@example.org",
	"NUL":           "x\x00y",
	"Bcc":           "Bcc: victim@example.org",
	"emoji":         "👩‍🔬🧪 Ω≈ç√∫",
	"right to left": "שלום עולם",
	"overrides":     "a\u202egpj.exe\u2066b\u2069\u200f\u061c",
	"separators":    "a\u2028b\u2029c\u0085d",
	"1 kB":          strings.Repeat("ä", 512),
	"1 kB ASCII":    strings.Repeat("a", 1024),
	"1 kB of words": strings.Repeat("wort ", 205),
	"invalid UTF-8": "a\xff\xfe\xc3(b\xed\xa0\x80",
	"quotes":        `"O'Neil" \ "x`,
	"tags":          `<script>alert(1)</script><img src=x onerror=y>`,
	"commas":        "Müller, Anna; <a@b>, (c)",
	"encoded word":  "=?utf-8?q?x=0D=0ABcc:_y?=",
	"boundary":      "--=_alternative_",
	"template":      "{{.First}}{{template \"x\"}}",
	"shell":         "$(rm -rf /); `x` && y | z",
	"option":        "--kubeconfig=/tmp/x",
	"calendar":      "x\nEND:VEVENT\nBEGIN:VEVENT\nUID:y;,\\",
	"dot":           ".\r\n.\r\nQUIT",
	"spaces":        "  a   b\t\tc ",
	"empty":         "",
	"combining":     "e" + strings.Repeat("\u0301", 400),
}

// withHostileText puts a text into each user-provided place of an example.
func withHostileText(l ComposeRequest, text string) ComposeRequest {
	fill := func(n *v1alpha1.Notice) *v1alpha1.Notice {
		n = n.DeepCopy()
		n.Spec.Recipient.Name = v1alpha1.DisplayName(text)
		if n.Spec.Subject != nil {
			n.Spec.Subject.Name, n.Spec.Subject.Namespace = text, text
		}
		for key := range n.Spec.Inputs {
			switch key {
			case InputCause, InputDecision, InputProjects, InputSteps, InputAwaiting: // values of Sluice
			default:
				n.Spec.Inputs[key] = text
			}
		}
		if n.Spec.Inputs[InputProjects] != "" {
			n.Spec.Inputs[InputProjects] = FormatProjectWeeks([]ProjectWeek{{Project: text, GPUHours: text, ExpiresAt: text}})
		}
		for _, key := range []string{InputSteps, InputAwaiting} {
			if n.Spec.Inputs[key] != "" {
				n.Spec.Inputs[key] = FormatProjectSteps([]ProjectStep{
					{Project: text, Phase: v1alpha1.ProjectPhase(text), At: text, Owners: text, ApprovedBy: text},
				})
			}
		}
		return n
	}
	l.Notice, l.From.Name = fill(l.Notice), text
	carried := l.Carried
	l.Carried = nil
	for _, n := range carried {
		l.Carried = append(l.Carried, fill(n))
	}
	return l
}

// TestComposeHostileNames puts each hostile name into every place of every kind.
func TestComposeHostileNames(t *testing.T) {
	for what, text := range hostileTexts {
		t.Run(what, func(t *testing.T) {
			for i, l := range Examples() {
				if i/2%2 == i%2 {
					continue // one language for each is enough; they alternate
				}
				l = withHostileText(l, text)
				m := mustCompose(t, l)
				r := checkMail(t, l, m)
				assertSafe(t, m)
				unfolded := strings.ReplaceAll(r.parts["text/calendar"], "\r\n ", "")
				if n := strings.Count(unfolded, "\r\nBEGIN:VEVENT\r\n"); n > max(1, len(l.Carried)) {
					t.Errorf("%s: %d events", l.Notice.Name, n)
				}
			}
		})
	}
}

// assertSafe asserts that no name injects content into the bodies.
func assertSafe(t testing.TB, m *Message) {
	t.Helper()
	for _, s := range []string{m.Subject, m.Text, m.HTML} {
		if !utf8.ValidString(s) {
			t.Errorf("not UTF-8: %q", s)
		}
		if strings.ContainsAny(s, "\r\x00\u0085\u2028\u2029\u202e\u202a\u2066\u2067\u200f\u061c") {
			t.Errorf("a control character is left: %q", s)
		}
	}
	if strings.Contains(m.Subject, "\n") || utf8.RuneCountInString(m.Subject) > maxSubjectRunes {
		t.Errorf("subject %q", m.Subject)
	}
	// Only one style sheet, no scripts, and the tags of the layout.
	if lower := strings.ToLower(m.HTML); strings.Count(lower, "<style") != 1 || strings.Contains(lower, "<script") ||
		strings.Contains(lower, "<img") {
		t.Errorf("HTML was injected:\n%s", m.HTML)
	}
	for line := range strings.SplitSeq(m.Text, "\n") {
		command := strings.TrimSpace(line)
		if (strings.HasPrefix(command, "sluice ") || strings.HasPrefix(command, "kubectl ")) && strings.HasPrefix(line, "    ") &&
			strings.ContainsAny(command, "$`&|;") {
			t.Errorf("a command with a hook: %q", command)
		}
	}
}

func TestSanitize(t *testing.T) {
	for text, want := range map[string]string{
		"Anna Müller":                "Anna Müller",
		" a \r\n b\tc ":              "a b c",
		"a\u202eb\u200bc\ufeffd":     "abcd",
		"👩‍🔬":                        "👩‍🔬",
		"a\xffb":                     "a\ufffdb",
		strings.Repeat("ä", 81):      strings.Repeat("ä", 79) + "…",
		strings.Repeat("ä", 80):      strings.Repeat("ä", 80),
		strings.Repeat("a ", 60):     strings.Repeat("a ", 39) + "a…",
		"\x1b[31mred\x07":            "[31mred",
		"a\u2028b":                   "a b",
		"soft\u00adhyphen \ue000 po": "softhyphen po",
	} {
		if got := displayName(text); got != want {
			t.Errorf("name(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestCommandArgument(t *testing.T) {
	for text, want := range map[string]string{
		"thesis-mueller": "thesis-mueller", "a.b-c": "a.b-c", "": "NAME", "-n": "NAME", "a b": "NAME", "a;b": "NAME", "$(x)": "NAME",
		"a\nb": "NAME", strings.Repeat("a", 253): strings.Repeat("a", 253), strings.Repeat("a", 254): "NAME", "ä": "NAME",
	} {
		if got := commandArgument(text, "NAME"); got != want {
			t.Errorf("argument(%q) = %q, want %q", text, got, want)
		}
	}
}

func BenchmarkCompose(b *testing.B) {
	l := Examples()[0]
	for b.Loop() {
		if _, err := Compose(l); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzCompose composes a mail of each kind with fuzzed names and zone.
func FuzzCompose(f *testing.F) {
	for _, text := range hostileTexts {
		f.Add(text, text, "Europe/Berlin", uint(0))
		f.Add("Anna Müller", text, "America/St_Johns", uint(7))
	}
	f.Add("Anna", "thesis", "nowhere", uint(3))
	requests := Examples()
	f.Fuzz(func(t *testing.T, person, project, zone string, which uint) {
		l := withHostileText(requests[which%uint(len(requests))], project)
		l.Notice.Spec.Recipient.Name = v1alpha1.DisplayName(person)
		l.Notice.Spec.Recipient.TimeZone = zone
		m, err := Compose(l)
		if err != nil {
			t.Fatal(err)
		}
		checkMail(t, l, m)
		assertSafe(t, m)
		again, err := Compose(l)
		if err != nil || !bytes.Equal(m.Bytes, again.Bytes) {
			t.Errorf("the same letter made other bytes (%v)", err)
		}
	})
}
