// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mailsink

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/lifecycle/notification/mail"
)

// storeMail writes a mail into a folder and reads it back.
func storeMail(t testing.TB, raw string) (*Mail, Header) {
	t.Helper()
	dir := t.TempDir()
	name := fileName(receivedAt, "a@example.org", 1)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Read(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	list, err := List(dir)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v %v", list, err)
	}
	return m, list[0]
}

// Read returns the content of all mails that Sluice sends.
func TestReadSluiceMail(t *testing.T) {
	for _, letter := range mail.Examples() {
		t.Run(letter.Notice.Name, func(t *testing.T) {
			want, err := mail.Compose(letter)
			if err != nil {
				t.Fatal(err)
			}
			got, h := storeMail(t, string(want.Bytes))
			if got.Problem != "" || h.Problem != "" {
				t.Fatal(got.Problem, h.Problem)
			}
			type content struct{ Subject, To, MessageID, Text, HTML string }
			if diff := cmp.Diff(content{want.Subject, string(letter.Notice.Spec.Recipient.Email), want.MessageID, want.Text, want.HTML},
				content{h.Subject, h.To, h.MessageID, got.Text, got.HTML}); diff != "" {
				t.Error(diff)
			}
			if !h.Date.Equal(letter.Notice.CreationTimestamp.Time) {
				t.Errorf("date %s", h.Date)
			}
		})
	}
}

func nestedMail(levels int) string {
	var b strings.Builder
	b.WriteString("Subject: deep\r\n")
	for i := range levels {
		fmt.Fprintf(&b, "Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n", i, i)
	}
	return b.String() + "\r\ntext\r\n"
}

func TestReadHostileMails(t *testing.T) {
	many := "Subject: many\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" + strings.Repeat("--b\r\n\r\nx\r\n", 100_000)
	tests := map[string]struct{ raw, subject, problem string }{
		"empty":         {"", "", "header cannot be read"},
		"not a mail":    {"\x00\x01\x02", "", "header cannot be read"},
		"a huge header": {"Subject: " + strings.Repeat("x", 1<<20), "", "header cannot be read"},
		"deep":          {nestedMail(1000), "deep", "more than 5 levels"},
		"many parts":    {many, "many", "more than 100 parts"},
		"a truncated multipart": {
			"Subject: cut\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nx", "cut",
			"not all of the mail",
		},
		"no boundary":           {"Subject: none\r\nContent-Type: multipart/mixed\r\n\r\nx", "none", "not all of the mail"},
		"an unknown charset":    {"Subject: odd\r\nContent-Type: text/plain; charset=x-odd\r\n\r\n\xff", "odd", ""},
		"an unknown encoding":   {"Subject: odd\r\nContent-Transfer-Encoding: x-odd\r\n\r\nx", "odd", ""},
		"a broken encoded word": {"Subject: =?utf-8?q?=C3=?= =?x?b?!?=\r\n\r\nx", "", ""},
		"a bad date":            {"Subject: s\r\nDate: yesterday\r\n\r\nx", "s", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m, h := storeMail(t, tc.raw)
			if tc.subject != "" && (m.Subject != tc.subject || h.Subject != tc.subject) {
				t.Errorf("subject %q, %q", m.Subject, h.Subject)
			}
			if (tc.problem == "") != (m.Problem == "") || !strings.Contains(m.Problem, tc.problem) {
				t.Errorf("problem %q, want %q", m.Problem, tc.problem)
			}
		})
	}
}

func TestReadRejectsOtherFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"", "x.eml", "../" + fileName(receivedAt, "a", 1), "2026-13-22T11:14:03Z-a-1.eml",
		fileName(receivedAt, "a", 1), "2026-11-22T11:14:03Z-a-99999999999999999999.eml",
	} {
		if _, err := Read(dir, name); !errors.Is(err, ErrNoMail) {
			t.Errorf("%q: %v", name, err)
		}
	}
	large := filepath.Join(dir, fileName(receivedAt, "a", 2))
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, MaxSize+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, filepath.Base(large)); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	for _, letter := range mail.Examples()[:4] {
		m, err := mail.Compose(letter)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(m.Bytes))
	}
	f.Add(nestedMail(7))
	f.Fuzz(func(t *testing.T, raw string) {
		m := &Mail{Header: parseHeader([]byte(raw)), Raw: []byte(raw)}
		if m.parse(); len(m.Attachments) > maxParts {
			t.Errorf("the mail has %d parts", len(m.Attachments))
		}
	})
}
