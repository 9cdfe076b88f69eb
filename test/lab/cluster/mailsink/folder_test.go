// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mailsink

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var receivedAt = time.Date(2026, 11, 22, 11, 14, 3, 0, time.UTC)

func fileNames(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// Numbers continue after restarts, also after mails that a user removed. The sink removes
// its unfinished files and keeps other files.
func TestMailFolderReopened(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mail")
	f, err := openMailFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"b@example.org", "a@example.org", ""} {
		if _, err := f.store(receivedAt, to, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{unfinished + "123": "half", "notes.txt": "mine"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "2026-11-22T11:14:03Z-b@example.org-1.eml")); err != nil {
		t.Fatal(err)
	}
	if f, err = openMailFolder(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := f.store(receivedAt, "a@example.org", []byte("y")); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"2026-11-22T11:14:03Z-a@example.org-2.eml", "2026-11-22T11:14:03Z-a@example.org-4.eml",
		"2026-11-22T11:14:03Z-nobody-3.eml", "notes.txt",
	}
	if diff := cmp.Diff(want, fileNames(t, dir)); diff != "" {
		t.Error(diff)
	}
	if n, err := Count(dir); n != 3 || err != nil {
		t.Errorf("%d mails, %v", n, err)
	}
}

func TestOldestMailsRemoved(t *testing.T) {
	dir := t.TempDir()
	f, err := openMailFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	f.maxMails = 2
	for range 5 {
		if _, err := f.store(receivedAt, "a@example.org", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"2026-11-22T11:14:03Z-a@example.org-4.eml", "2026-11-22T11:14:03Z-a@example.org-5.eml"}
	if diff := cmp.Diff(want, fileNames(t, dir)); diff != "" {
		t.Error(diff)
	}
}

func TestListWithoutFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	list, err := List(dir)
	n, countErr := Count(dir)
	if list != nil || n != 0 || err != nil || countErr != nil {
		t.Errorf("%v %d %v %v", list, n, err, countErr)
	}
}
