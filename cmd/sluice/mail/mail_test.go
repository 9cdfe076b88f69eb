// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/cmd/sluice/mail"
	"sluice.dev/cmd/sluice/show"
	"sluice.dev/lifecycle/notices/message"
	"sluice.dev/test/cluster/mailsink"
)

var update = flag.Bool("update", false, "write what is shown into testdata anew")

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
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

const hostile = "From: x\r\nTo: Eve <eve@example.org>\r\nSubject: =?utf-8?q?=1B[2Jred=E2=80=AE?=\r\nDate: never\r\n\r\nplain \x1b]0;x\x07text\r\n"

// folder has two mails of Sluice, a hostile one and one that cannot be read.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	raws := []string{}
	for _, letter := range message.Examples() {
		if name := letter.Notice.Name; name == "workloadending-job.de" || name == "extensiondecided-refused.en" {
			m, err := message.Compose(letter)
			if err != nil {
				t.Fatal(err)
			}
			raws = append(raws, string(m.Bytes))
		}
	}
	for i, raw := range append(raws, hostile, "\x00") {
		name := fmt.Sprintf("2026-11-22T11:14:%02dZ-somebody@example.org-%d.eml", i, i+1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(raw), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestList(t *testing.T) {
	dir := folder(t)
	var table, one, machine bytes.Buffer
	all, err := mail.List(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := all.Table(&table, time.UTC); err != nil {
		t.Fatal(err)
	}
	golden(t, "list.txt", table.String())
	eves, err := mail.List(dir, "EVE@example.org")
	if err != nil {
		t.Fatal(err)
	}
	if err := eves.Table(&one, time.UTC); err != nil {
		t.Fatal(err)
	}
	golden(t, "list-to.txt", one.String())
	eves.Dir = "/lab/.sluice/mail"
	if err := show.JSON(&machine, eves); err != nil {
		t.Fatal(err)
	}
	golden(t, "list.json", machine.String())
	none, err := mail.List(filepath.Join(dir, "none"), "")
	if raw, _ := json.Marshal(none.Mails); err != nil || string(raw) != "[]" {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestShow(t *testing.T) {
	dir := folder(t)
	for which, name := range map[string]string{"1": "ending.txt", "3": "hostile.txt", "4": "broken.txt"} {
		m, err := mail.Find(dir, which)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := mail.Text(&got, m, time.UTC); err != nil {
			t.Fatal(err)
		}
		golden(t, name, got.String())
	}
}

func TestFormsAreAsTheyCame(t *testing.T) {
	dir := folder(t)
	m, err := mail.Find("elsewhere", filepath.Join(dir, "2026-11-22T11:14:02Z-somebody@example.org-3.eml"))
	if err != nil {
		t.Fatal(err)
	}
	var raw, html bytes.Buffer
	if err := mail.Raw(&raw, m); err != nil || raw.String() != hostile {
		t.Errorf("%q, %v", raw.String(), err)
	}
	if err := mail.HTML(&html, m); err == nil || !strings.Contains(err.Error(), "sluice mail show 3") {
		t.Error(err)
	}
	if m, err = mail.Find(dir, "2"); err != nil {
		t.Fatal(err)
	}
	if err := mail.HTML(&html, m); err != nil || !strings.HasPrefix(html.String(), "<!DOCTYPE html>") {
		t.Errorf("%q, %v", html.String(), err)
	}
}

func TestFindSaysWhatThereIs(t *testing.T) {
	dir := folder(t)
	for _, which := range []string{"9", "-1", "x", "2026-11-22T11:14:00Z-somebody@example.org-9.eml", ""} {
		if _, err := mail.Find(dir, which); !errors.Is(err, mailsink.ErrNoMail) || !strings.Contains(err.Error(), "`sluice mail` lists") {
			t.Errorf("%q: %v", which, err)
		}
	}
}
