// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

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
	"time"

	gomessage "github.com/emersion/go-message"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// parsedMail is a decoded mail.
type parsedMail struct {
	header mail.Header
	parts  map[string]string // by media type
}

// parseMail parses a mail with net/mail, which is strict, and go-message.
func parseMail(t testing.TB, raw []byte) parsedMail {
	t.Helper()
	strict, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("net/mail: %v\n%s", err, raw)
	}
	entity, err := gomessage.Read(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("go-message: %v\n%s", err, raw)
	}
	r := parsedMail{header: strict.Header, parts: map[string]string{}}
	r.walkParts(t, entity)
	return r
}

func (r parsedMail) walkParts(t testing.TB, e *gomessage.Entity) {
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
			r.walkParts(t, part)
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

// partTypes lists the header fields with repetitions.
func (r parsedMail) partTypes() (keys []string) {
	for key, values := range r.header {
		for range values {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// expectedPartTypes lists the expected header fields.
func expectedPartTypes(l ComposeRequest) []string {
	keys := []string{
		"Auto-Submitted", "Content-Language", "Content-Type", "Date", "From", "Message-Id", "Mime-Version",
		"Reply-To", "Subject", "To", "X-Auto-Response-Suppress",
	}
	if l.Notice.Spec.Subject != nil {
		keys = append(keys, "In-Reply-To", "References")
	}
	if l.Notice.Spec.IsOptional() {
		keys = append(keys, "List-Unsubscribe")
	}
	slices.Sort(keys)
	return keys
}

// checkMail asserts what holds for every mail.
func checkMail(t testing.TB, l ComposeRequest, m *Message) parsedMail {
	t.Helper()
	r := parseMail(t, m.Bytes)
	if diff := cmp.Diff(expectedPartTypes(l), r.partTypes()); diff != "" {
		t.Errorf("header fields (-want +got)\n%s\n%s", diff, m.Bytes)
	}
	head := true
	for line := range strings.SplitSeq(strings.TrimSuffix(string(m.Bytes), "\r\n"), "\r\n") {
		head = head && line != ""
		if strings.ContainsAny(line, "\r\n\x00") {
			t.Errorf("a bare CR, LF or NUL: %q", line)
		}
		if len(line) > 998 || head && len(line) > 350 || head && strings.Contains(line, "=?") && len(line) > maxHeaderLineLength {
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
	called := displayName(string(l.Notice.Spec.Recipient.Name))
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

func TestComposeParsesBack(t *testing.T) {
	for _, l := range Examples() {
		t.Run(l.Notice.Name, func(t *testing.T) {
			m := mustCompose(t, l)
			r := checkMail(t, l, m)
			events := r.parts["text/calendar"]
			if wantEvents := l.Notice.Spec.Deadline != nil || len(l.Carried) > 0 || l.Canceled; (events != "") != wantEvents {
				t.Errorf("calendar part: %q, want one: %v", events, wantEvents)
			}
			again := mustCompose(t, l)
			if !bytes.Equal(m.Bytes, again.Bytes) {
				t.Error("the same letter made other bytes")
			}
			if strings.Contains(m.Text, "<no value>") || strings.Contains(m.Text, "  .") || strings.Contains(m.Text, " ,") ||
				strings.Contains(m.Text, "..") {
				t.Errorf("the text is not smooth:\n%s", m.Text)
			}
		})
	}
}

// TestComposeMinimalNotices composes Notices without optional inputs.
func TestComposeMinimalNotices(t *testing.T) {
	for _, l := range Examples() {
		kind := l.Notice.Spec.Kind
		if kind == v1alpha1.NoticeDigest {
			continue
		}
		if !kindsWithDeadline[kind] {
			l.Notice.Spec.Deadline = nil
		}
		l.Notice.Spec.Inputs, l.ReplyTo = nil, "helpdesk@example.org"
		if kind == v1alpha1.NoticeExtensionDecided {
			l.Notice.Spec.Inputs = map[string]string{InputDecision: "Denied"}
		}
		m := mustCompose(t, l)
		checkMail(t, l, m)
		for _, bad := range []string{"<no value>", "<nil>", " .", " ,", "..", "()", "“”", "„“", " :"} {
			if strings.Contains(m.Subject+"\n"+m.Text, bad) {
				t.Errorf("%s has %q:\n%s\n%s", l.Notice.Name, bad, m.Subject, m.Text)
			}
		}
	}
}

func TestBuildHeader(t *testing.T) {
	first := Examples()[0]
	second := first
	second.Notice = first.Notice.DeepCopy()
	second.Notice.Name, second.Notice.UID = "another", "another"
	renamed := first
	renamed.Notice = first.Notice.DeepCopy()
	renamed.Notice.Spec.Subject.UID = "recreated"
	a, b, c := parseMail(
		t, mustCompose(t, first).Bytes,
	), parseMail(
		t, mustCompose(t, second).Bytes,
	), parseMail(
		t, mustCompose(t, renamed).Bytes,
	)
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

func TestListUnsubscribe(t *testing.T) {
	for _, l := range Examples() {
		got := parseMail(t, mustCompose(t, l).Bytes).header.Get("List-Unsubscribe")
		want := ""
		if l.Notice.Spec.IsOptional() {
			want = fmt.Sprintf("<mailto:helpdesk@example.org?subject=Mute%%20%s>", l.Notice.Spec.Kind)
		}
		if got != want {
			t.Errorf("%s: List-Unsubscribe %q, want %q", l.Notice.Name, got, want)
		}
	}
}

func TestComposeInvalidRequests(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*ComposeRequest)
		want   string
	}{
		"no notice":      {func(l *ComposeRequest) { l.Notice = nil }, "the request has no notice"},
		"unknown kind":   {func(l *ComposeRequest) { l.Notice.Spec.Kind = "Nonsense" }, `spec.kind: there is no text for "Nonsense"`},
		"no deadline":    {func(l *ComposeRequest) { l.Notice.Spec.Deadline = nil }, "spec.deadline: a WorkloadEnding warns of one"},
		"no subject":     {func(l *ComposeRequest) { l.Notice.Spec.Subject = nil }, "spec.subject: a WorkloadEnding speaks of an object"},
		"two recipients": {func(l *ComposeRequest) { l.Notice.Spec.Recipient.Email = "a@example.org,b@example.org" }, "spec.recipient.email:"},
		"recipient's CRLF": {
			func(l *ComposeRequest) { l.Notice.Spec.Recipient.Email = "a@example.org\r\nBcc: b@example.org" }, "spec.recipient.email:",
		},
		"parameters":   {func(l *ComposeRequest) { l.Notice.Spec.Recipient.Email = "a@example.org> NOTIFY=NEVER" }, "spec.recipient.email:"},
		"sender":       {func(l *ComposeRequest) { l.From.Address = "Sluice" }, "from:"},
		"answers":      {func(l *ComposeRequest) { l.ReplyTo = "x\r\n" }, "replyTo:"},
		"domain":       {func(l *ComposeRequest) { l.Domain = "x>\r\nBcc: y" }, "domain:"},
		"not a digest": {func(l *ComposeRequest) { l.Carried = []*v1alpha1.Notice{l.Notice} }, "it is a Digest that carries Notices"},
		"empty digest": {
			func(l *ComposeRequest) { l.Notice.Spec.Kind = v1alpha1.NoticeDigest; l.Notice.Spec.Subject = nil }, "a digest that carries nothing",
		},
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

func exampleDigest(t *testing.T) ComposeRequest {
	t.Helper()
	all := Examples()
	i := slices.IndexFunc(all, func(l ComposeRequest) bool { return l.Notice.Name == "digest-two.en" })
	if i < 0 {
		t.Fatal("there is no such example")
	}
	return all[i]
}

// TestComposeLongDigest: a digest of many projects names each.
func TestComposeLongDigest(t *testing.T) {
	l := exampleDigest(t)
	pattern := l.Carried[1]
	l.Carried = nil
	for i := range 600 {
		n := pattern.DeepCopy()
		n.Name = fmt.Sprintf("carried-%03d", i)
		n.Spec.Subject.Name, n.Spec.Subject.UID = fmt.Sprintf("project-%03d", i), ""
		n.Spec.Inputs[InputProject] = n.Spec.Subject.Name
		n.Spec.Deadline = &metav1.Time{Time: exampleTime.Add(time.Duration(600-i) * time.Hour)}
		l.Carried = append(l.Carried, n)
	}
	before := slices.Clone(l.Carried)
	m := mustCompose(t, l)
	r := checkMail(t, l, m)
	if !slices.Equal(before, l.Carried) {
		t.Error("the request was changed")
	}
	for i := range 600 {
		title := fmt.Sprintf("Project project-%03d expires soon", i)
		if !strings.Contains(m.Text, title) || !strings.Contains(m.HTML, title) || !strings.Contains(r.parts["text/calendar"], title) {
			t.Fatalf("%q is missing", title)
		}
	}
	if first, last := strings.Index(m.Text, "project-599"), strings.Index(m.Text, "project-000"); first > last {
		t.Error("what is due first does not come first")
	}
	if want := "600 notices, next deadline Sun 22 Nov, 13:14 CET: Project project-599 expires soon"; m.Subject != want {
		t.Errorf("subject %q, want %q", m.Subject, want)
	}
}

func TestCalendarDigestSequences(t *testing.T) {
	l := exampleDigest(t)
	l.Sequence, l.Sequences = 1, map[string]int{l.Carried[0].Name: 7}
	got := slices.DeleteFunc(parseCalendar(t, l), func(s string) bool { return !strings.HasPrefix(s, "SEQUENCE:") })
	if want := []string{"SEQUENCE:1", "SEQUENCE:7"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestComposeDigestWithoutDeadlines composes a digest of Notices without deadline.
func TestComposeDigestWithoutDeadlines(t *testing.T) {
	l := exampleDigest(t)
	renewed := l.Carried[0].DeepCopy()
	renewed.Spec.Kind, renewed.Spec.Deadline = v1alpha1.NoticeProjectRenewed, nil
	l.Carried = []*v1alpha1.Notice{renewed}
	m := mustCompose(t, l)
	r := checkMail(t, l, m)
	if r.parts["text/calendar"] != "" || m.Subject != "Project protein-folding is valid indefinitely" {
		t.Errorf("%q with %q", m.Subject, r.parts["text/calendar"])
	}
}
