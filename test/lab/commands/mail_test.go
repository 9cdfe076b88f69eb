// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"

	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/test/lab/cluster/mailsink"
)

const hostileMail = "From: x\r\nTo: Eve <eve@example.org>\r\nSubject: =?utf-8?q?=1B[2Jred=E2=80=AE?=\r\nDate: never\r\n" +
	"\r\nplain \x1b]0;x\x07text\r\n"

// newMailDir returns a folder with two mails of Sluice, a hostile one and an
// unreadable one.
func newMailDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	raws := []string{}
	for _, request := range mail.Examples() {
		if name := request.Notice.Name; name == "workloadending-job.de" || name == "extensiondecided-refused.en" {
			m, err := mail.Compose(request)
			if err != nil {
				t.Fatal(err)
			}
			raws = append(raws, string(m.Bytes))
		}
	}
	for i, raw := range append(raws, hostileMail, "\x00") {
		name := fmt.Sprintf("2026-11-22T11:14:%02dZ-anna@example.org-%d.eml", i, i+1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(raw), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestListMails(t *testing.T) {
	dir := newMailDir(t)
	all, err := listMails(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, tableText(t, all.table(time.UTC)), "list.txt")
	toEve, err := listMails(dir, "EVE@example.org")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, tableText(t, toEve.table(time.UTC)), "list-to.txt")
	toEve.Dir = "/lab/.sluice/mail"
	golden.Assert(t, jsonText(t, toEve), "list.json")
	none, err := listMails(filepath.Join(dir, "none"), "")
	if raw, _ := json.Marshal(none.Mails); err != nil || string(raw) != "[]" {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestMailText(t *testing.T) {
	dir := newMailDir(t)
	for which, name := range map[string]string{"1": "ending.txt", "3": "hostile.txt", "4": "broken.txt"} {
		m, err := findMail(dir, which)
		if err != nil {
			t.Fatal(err)
		}
		golden.Assert(t, mailText(m, time.UTC), name)
	}
}

func TestWriteMailHTMLAndRaw(t *testing.T) {
	dir := newMailDir(t)
	m, err := findMail("elsewhere", filepath.Join(dir, "2026-11-22T11:14:02Z-anna@example.org-3.eml"))
	if err != nil {
		t.Fatal(err)
	}
	var raw, html bytes.Buffer
	if err := writeMailRaw(&raw, m); err != nil || raw.String() != hostileMail {
		t.Errorf("%q, %v", raw.String(), err)
	}
	if err := writeMailHTML(&html, m); err == nil || !strings.Contains(err.Error(), "sluice mail show 3") {
		t.Error(err)
	}
	if m, err = findMail(dir, "2"); err != nil {
		t.Fatal(err)
	}
	if err := writeMailHTML(&html, m); err != nil || !strings.HasPrefix(html.String(), "<!DOCTYPE html>") {
		t.Errorf("%q, %v", html.String(), err)
	}
}

func TestFindMailErrors(t *testing.T) {
	dir := newMailDir(t)
	for _, which := range []string{"9", "-1", "x", "2026-11-22T11:14:00Z-anna@example.org-9.eml", ""} {
		if _, err := findMail(dir, which); !errors.Is(err, mailsink.ErrNoMail) || !strings.Contains(err.Error(), "`sluice mail list`") {
			t.Errorf("%q: %v", which, err)
		}
	}
}
