// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/mail"
	"slices"
	"strings"
	"testing"

	gomessage "github.com/emersion/go-message"
	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
)

// read is a mail as a reader sees it.
type read struct {
	header mail.Header
	parts  map[string]string // by media type
}

// readMail reads a mail by net/mail, which is strict, and go-message.
func readMail(t testing.TB, raw []byte) read {
	t.Helper()
	strict, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("net/mail: %v\n%s", err, raw)
	}
	entity, err := gomessage.Read(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("go-message: %v\n%s", err, raw)
	}
	r := read{header: strict.Header, parts: map[string]string{}}
	r.walk(t, entity)
	return r
}

func (r read) walk(t testing.TB, e *gomessage.Entity) {
	t.Helper()
	if parts := e.MultipartReader(); parts != nil {
		for {
			part, err := parts.NextPart()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r.walk(t, part)
		}
	}
	body, err := io.ReadAll(e.Body)
	if err != nil {
		t.Fatal(err)
	}
	mediaType, _, err := e.Header.ContentType()
	if err != nil {
		t.Fatal(err)
	}
	r.parts[mediaType] = string(body)
}

// keys are the header fields, each as often as it occurs.
func (r read) keys() (keys []string) {
	for key, values := range r.header {
		for range values {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// expectedKeys are the header fields that a letter's mail has.
func expectedKeys(l Letter) []string {
	keys := []string{
		"Auto-Submitted", "Content-Language", "Content-Type", "Date", "From", "Message-Id", "Mime-Version",
		"Reply-To", "Subject", "To", "X-Auto-Response-Suppress",
	}
	if l.Notice.Spec.Subject != nil {
		keys = append(keys, "In-Reply-To", "References")
	}
	if optional[l.Notice.Spec.Kind] {
		keys = append(keys, "List-Unsubscribe")
	}
	slices.Sort(keys)
	return keys
}

// check asserts what holds for every mail.
func check(t testing.TB, l Letter, m *Mail) read {
	t.Helper()
	r := readMail(t, m.Bytes)
	if diff := cmp.Diff(expectedKeys(l), r.keys()); diff != "" {
		t.Errorf("header fields (-want +got)\n%s\n%s", diff, m.Bytes)
	}
	head := true
	for line := range strings.SplitSeq(strings.TrimSuffix(string(m.Bytes), "\r\n"), "\r\n") {
		head = head && line != ""
		if strings.ContainsAny(line, "\r\n\x00") {
			t.Errorf("a bare CR, LF or NUL: %q", line)
		}
		if len(line) > 998 || head && len(line) > 350 || head && strings.Contains(line, "=?") && len(line) > lineLength {
			t.Errorf("a line of %d bytes: %q", len(line), line)
		}
		for i := range len(line) {
			if line[i] >= 0x80 {
				t.Fatalf("a byte that is not ASCII: %q", line)
			}
		}
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(r.header.Get("Subject"))
	if err != nil || subject != m.Subject {
		t.Errorf("subject reads %q, want %q (%v)", subject, m.Subject, err)
	}
	called := name(string(l.Notice.Spec.Recipient.Name))
	if l.Notice.Spec.Kind == v1alpha1.NoticeTest {
		called = ""
	}
	to, err := r.header.AddressList("To")
	if err != nil || len(to) != 1 || to[0].Address != string(l.Notice.Spec.Recipient.Email) || to[0].Name != called {
		t.Errorf("To reads %v (%v)", to, err)
	}
	if got := strings.ReplaceAll(r.parts["text/plain"], "\r\n", "\n"); got != m.Text {
		t.Errorf("text (-want +got)\n%s", cmp.Diff(m.Text, got))
	}
	if got := strings.ReplaceAll(r.parts["text/html"], "\r\n", "\n"); got != m.HTML {
		t.Errorf("HTML (-want +got)\n%s", cmp.Diff(m.HTML, got))
	}
	if n := strings.Count(m.HTML, "<td"); n == 0 || strings.Contains(m.HTML, "<script") || strings.Contains(m.HTML, "<img") {
		t.Errorf("HTML has %d cells, or something live:\n%s", n, m.HTML)
	}
	return r
}

func TestMailsReadBack(t *testing.T) {
	for _, l := range Examples() {
		t.Run(l.Notice.Name, func(t *testing.T) {
			m := compose(t, l)
			r := check(t, l, m)
			events := r.parts["text/calendar"]
			if wantEvents := l.Notice.Spec.Deadline != nil || len(l.Carried) > 0 || l.Cancelled; (events != "") != wantEvents {
				t.Errorf("calendar part: %q, want one: %v", events, wantEvents)
			}
			again := compose(t, l)
			if !bytes.Equal(m.Bytes, again.Bytes) {
				t.Error("the same letter made other bytes")
			}
			if strings.Contains(m.Text, "<no value>") || strings.Contains(m.Text, "  .") || strings.Contains(m.Text, " ,") || strings.Contains(m.Text, "..") {
				t.Errorf("the text is not smooth:\n%s", m.Text)
			}
		})
	}
}

// TestBareNotices writes notices whose recorder gave less than it might.
func TestBareNotices(t *testing.T) {
	for _, l := range Examples() {
		kind := l.Notice.Spec.Kind
		if kind == v1alpha1.NoticeDigest {
			continue
		}
		if !dated[kind] {
			l.Notice.Spec.Deadline = nil
		}
		l.Notice.Spec.Inputs, l.ReplyTo = nil, "helpdesk@example.org"
		if kind == v1alpha1.NoticeExtensionDecided {
			l.Notice.Spec.Inputs = map[string]string{InputDecision: "Refused"}
		}
		m := compose(t, l)
		check(t, l, m)
		for _, bad := range []string{"<no value>", "<nil>", " .", " ,", "..", "()", "“”", "„“", " :"} {
			if strings.Contains(m.Subject+"\n"+m.Text, bad) {
				t.Errorf("%s has %q:\n%s\n%s", l.Notice.Name, bad, m.Subject, m.Text)
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	first := Examples()[0]
	second := first
	second.Notice = first.Notice.DeepCopy()
	second.Notice.Name, second.Notice.UID = "another", "another"
	renamed := first
	renamed.Notice = first.Notice.DeepCopy()
	renamed.Notice.Spec.Subject.UID = "made-anew"
	a, b, c := readMail(t, compose(t, first).Bytes), readMail(t, compose(t, second).Bytes), readMail(t, compose(t, renamed).Bytes)
	if a.header.Get("Message-Id") == b.header.Get("Message-Id") {
		t.Error("two notices have one Message-ID")
	}
	if a.header.Get("References") != b.header.Get("References") || a.header.Get("References") == c.header.Get("References") {
		t.Error("a thread is not that of the one subject")
	}
	if a.header.Get("References") != a.header.Get("In-Reply-To") || !strings.HasSuffix(a.header.Get("References"), "@gpu.example.org>") {
		t.Errorf("References %q, In-Reply-To %q", a.header.Get("References"), a.header.Get("In-Reply-To"))
	}
	want := map[string]string{
		"Date": "Sun, 22 Nov 2026 11:14:03 +0000", "Auto-Submitted": "auto-generated", "X-Auto-Response-Suppress": "All",
		"Reply-To": "helpdesk@example.org", "From": `"Sluice" <sluice@gpu.example.org>`, "Content-Language": "de",
		"Message-Id": MessageID(first.Notice, "gpu.example.org"),
	}
	for key, value := range want {
		if got := a.header.Get(key); got != value {
			t.Errorf("%s: %q, want %q", key, got, value)
		}
	}
}

func TestUnsubscribe(t *testing.T) {
	for _, l := range Examples() {
		got := readMail(t, compose(t, l).Bytes).header.Get("List-Unsubscribe")
		want := ""
		if optional[l.Notice.Spec.Kind] {
			want = fmt.Sprintf("<mailto:helpdesk@example.org?subject=Mute%%20%s>", l.Notice.Spec.Kind)
		}
		if got != want {
			t.Errorf("%s: List-Unsubscribe %q, want %q", l.Notice.Name, got, want)
		}
	}
}

func TestLettersThatCannotBeWritten(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Letter)
		want   string
	}{
		"no notice":        {func(l *Letter) { l.Notice = nil }, "a letter without a notice"},
		"unknown kind":     {func(l *Letter) { l.Notice.Spec.Kind = "Nonsense" }, `spec.kind: there is no text for "Nonsense"`},
		"no deadline":      {func(l *Letter) { l.Notice.Spec.Deadline = nil }, "spec.deadline: a WorkloadEnding warns of one"},
		"no subject":       {func(l *Letter) { l.Notice.Spec.Subject = nil }, "spec.subject: a WorkloadEnding speaks of an object"},
		"two recipients":   {func(l *Letter) { l.Notice.Spec.Recipient.Email = "a@example.org,b@example.org" }, "spec.recipient.email:"},
		"recipient's CRLF": {func(l *Letter) { l.Notice.Spec.Recipient.Email = "a@example.org\r\nBcc: b@example.org" }, "spec.recipient.email:"},
		"parameters":       {func(l *Letter) { l.Notice.Spec.Recipient.Email = "a@example.org> NOTIFY=NEVER" }, "spec.recipient.email:"},
		"sender":           {func(l *Letter) { l.From.Address = "Sluice" }, "from:"},
		"answers":          {func(l *Letter) { l.ReplyTo = "x\r\n" }, "replyTo:"},
		"domain":           {func(l *Letter) { l.Domain = "x>\r\nBcc: y" }, "domain:"},
		"not a digest":     {func(l *Letter) { l.Carried = []*v1alpha1.Notice{l.Notice} }, "it is a Digest that carries Notices"},
		"empty digest":     {func(l *Letter) { l.Notice.Spec.Kind = v1alpha1.NoticeDigest; l.Notice.Spec.Subject = nil }, "a digest that carries nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			l := Examples()[0]
			test.change(&l)
			m, err := Compose(l)
			if err == nil || !strings.Contains(err.Error(), test.want) || m != nil {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("the error has more than one line: %q", err)
			}
		})
	}
}
