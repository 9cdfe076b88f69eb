// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTail(t *testing.T) {
	long := strings.Repeat("x", mostTailInBytes)
	tests := []struct{ name, content, want string }{
		{"empty", "", ""},
		{"short", "one\ntwo\n", "one\ntwo"},
		{"last three", "1\n2\n3\n4\n5\n", "3\n4\n5"},
		{"no line feed at the end", "1\n2", "1\n2"},
		{"begins with a whole line", "first " + long + "\nsecond\nthird\n", "second\nthird"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			write(t, path, tt.content)
			got, err := Tail(path, 3)
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestLogOfTheRunBeforeIsKept(t *testing.T) {
	g := newGroup(t)
	for _, word := range []string{"first", "second"} {
		spec := shell("web", "echo "+word+"; exec sleep 1000")
		spec.Ready = said(g, "web", word)
		start(t, g, spec)
		if err := g.Remove(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(logsIn(g.dir), "web.log")
	if now, before := read(t, path), read(t, path+previousLog); now != "second\n" || before != "first\n" {
		t.Errorf("now %q, before %q", now, before)
	}
}

func TestBoundLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	log.WriteString("0123456789")

	if err := boundLog(path, 10); err != nil || read(t, path) != "0123456789" {
		t.Errorf("at its limit: %q, %v", read(t, path), err)
	}
	if err := boundLog(path, 9); err != nil {
		t.Fatal(err)
	}
	log.WriteString("more") // as the program does, which has the file open
	if now, before := read(t, path), read(t, path+previousLog); now != "more" || before != "0123456789" {
		t.Errorf("now %q, before %q", now, before)
	}
	if err := boundLog(filepath.Join(t.TempDir(), "none"), 1); err != nil {
		t.Errorf("a log that is not there: %v", err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
