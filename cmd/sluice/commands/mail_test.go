// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

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

	"github.com/google/go-cmp/cmp"

	"sluice.dev/cmd/sluice/commands"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/test/cluster/mailsink"
)

// compareMailGolden compares with a file of testdata.
func compareMailGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "mail", name)
	if *commands.Update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got; go test ./cmd/sluice/mail -update writes it anew)\n%s", name, diff)
	}
}

const hostileMail = "From: x\r\nTo: Eve <eve@example.org>\r\nSubject: =?utf-8?q?=1B[2Jred=E2=80=AE?=\r\nDate: never\r\n\r\nplain \x1b]0;x\x07text\r\n"

// newMailDir has two mails of Sluice, a hostile one and one that cannot be read.
func newMailDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	raws := []string{}
	for _, letter := range mail.Examples() {
		if name := letter.Notice.Name; name == "workloadending-job.de" || name == "extensiondecided-refused.en" {
			m, err := mail.Compose(letter)
			if err != nil {
				t.Fatal(err)
			}
			raws = append(raws, string(m.Bytes))
		}
	}
	for i, raw := range append(raws, hostileMail, "\x00") {
		name := fmt.Sprintf("2026-11-22T11:14:%02dZ-somebody@example.org-%d.eml", i, i+1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(raw), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestListMails(t *testing.T) {
	dir := newMailDir(t)
	var table, one, machine bytes.Buffer
	all, err := commands.ListMails(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := all.WriteTable(&table, time.UTC); err != nil {
		t.Fatal(err)
	}
	compareMailGolden(t, "list.txt", table.String())
	eves, err := commands.ListMails(dir, "EVE@example.org")
	if err != nil {
		t.Fatal(err)
	}
	if err := eves.WriteTable(&one, time.UTC); err != nil {
		t.Fatal(err)
	}
	compareMailGolden(t, "list-to.txt", one.String())
	eves.Dir = "/lab/.sluice/mail"
	if err := printer.WriteJSON(&machine, eves); err != nil {
		t.Fatal(err)
	}
	compareMailGolden(t, "list.json", machine.String())
	none, err := commands.ListMails(filepath.Join(dir, "none"), "")
	if raw, _ := json.Marshal(none.Mails); err != nil || string(raw) != "[]" {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestWriteMailText(t *testing.T) {
	dir := newMailDir(t)
	for which, name := range map[string]string{"1": "ending.txt", "3": "hostile.txt", "4": "broken.txt"} {
		m, err := commands.FindMail(dir, which)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := commands.WriteMailText(&got, m, time.UTC); err != nil {
			t.Fatal(err)
		}
		compareMailGolden(t, name, got.String())
	}
}

func TestWriteMailHTMLAndRaw(t *testing.T) {
	dir := newMailDir(t)
	m, err := commands.FindMail("elsewhere", filepath.Join(dir, "2026-11-22T11:14:02Z-somebody@example.org-3.eml"))
	if err != nil {
		t.Fatal(err)
	}
	var raw, html bytes.Buffer
	if err := commands.WriteMailRaw(&raw, m); err != nil || raw.String() != hostileMail {
		t.Errorf("%q, %v", raw.String(), err)
	}
	if err := commands.WriteMailHTML(&html, m); err == nil || !strings.Contains(err.Error(), "sluice mail show 3") {
		t.Error(err)
	}
	if m, err = commands.FindMail(dir, "2"); err != nil {
		t.Fatal(err)
	}
	if err := commands.WriteMailHTML(&html, m); err != nil || !strings.HasPrefix(html.String(), "<!DOCTYPE html>") {
		t.Errorf("%q, %v", html.String(), err)
	}
}

func TestFindMailErrors(t *testing.T) {
	dir := newMailDir(t)
	for _, which := range []string{"9", "-1", "x", "2026-11-22T11:14:00Z-somebody@example.org-9.eml", ""} {
		if _, err := commands.FindMail(dir, which); !errors.Is(err, mailsink.ErrNoMail) || !strings.Contains(err.Error(), "`sluice mail` lists") {
			t.Errorf("%q: %v", which, err)
		}
	}
}
