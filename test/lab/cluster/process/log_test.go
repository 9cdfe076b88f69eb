// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTail(t *testing.T) {
	long := strings.Repeat("x", maxTailBytes)
	tests := []struct{ name, content, want string }{
		{"empty", "", ""},
		{"short", "one\ntwo\n", "one\ntwo"},
		{"last three", "1\n2\n3\n4\n5\n", "3\n4\n5"},
		{"no line feed at the end", "1\n2", "1\n2"},
		{"starts with a whole line", "first " + long + "\nsecond\nthird\n", "second\nthird"},
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

func TestPreviousLogKept(t *testing.T) {
	g := newGroup(t)
	for _, word := range []string{"first", "second"} {
		spec := shellSpec("web", "echo "+word+"; exec sleep 1000")
		spec.Ready = readLog(g, "web", word)
		start(t, g, spec)
		if _, err := g.Remove(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(logsIn(g.dir), "web.log")
	if now, before := read(t, path), read(t, path+previousLog); now != "second\n" || before != "first\n" {
		t.Errorf("now %q, before %q", now, before)
	}
}

func TestLimitLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	log.WriteString("0123456789")

	if err := limitLog(path, 10); err != nil || read(t, path) != "0123456789" {
		t.Errorf("at its limit: %q, %v", read(t, path), err)
	}
	if err := limitLog(path, 9); err != nil {
		t.Fatal(err)
	}
	log.WriteString("more") // the program writes to its open file as well
	if now, before := read(t, path), read(t, path+previousLog); now != "more" || before != "0123456789" {
		t.Errorf("now %q, before %q", now, before)
	}
	if err := limitLog(filepath.Join(t.TempDir(), "none"), 1); err != nil {
		t.Errorf("a missing log: %v", err)
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

func TestReason(t *testing.T) {
	const (
		warning = `{"level":"warn","msg":"slow"}` + "\n"
		first   = `{"level":"error","msg":"writeAt failed"}` + "\n"
		second  = `{"level":"error","msg":"cannot open"}` + "\n"
		full    = `{"level":"panic","msg":"failed to open database","error":"write db: no space left on device"`
		goPanic = "panic: failed to open database\n\ngoroutine 130 [running]:\n"
	)
	tests := []struct{ name, content, want string }{
		{"empty", "", ""},
		{"no fatal line", warning + "listening\nno panic: all is well\n", ""},
		{"the clearest, not the first", first + second + full + "}\n" + goPanic, full + "}"},
		{"without its stack", full + `,"stacktrace":"a\n\tb"}` + "\n", full + "}"},
		{"a plain panic", warning + goPanic, "panic: failed to open database"},
		{"a fatal error of Go", "fatal error: all goroutines are asleep\n", "fatal error: all goroutines are asleep"},
		{
			"klog", "I1121 11:45:39.1 main.go:1] up\nF1121 11:45:39.8 main.go:2] no certificate\n",
			"F1121 11:45:39.8 main.go:2] no certificate",
		},
		{"the first error", warning + first + second, strings.TrimSpace(first)},
		{"no line feed at the end", full + "}", full + "}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			before := "panic: of the run before\n"
			write(t, path, before+tt.content)
			if got := findReason(path, int64(len(before))); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := findReason(filepath.Join(t.TempDir(), "none"), 0); got != "" {
		t.Errorf("findReason of a missing log: %q", got)
	}
}

// The error shows the reason of a program that ends with a long stack.
func TestStartErrorShowsReasonBeforeStack(t *testing.T) {
	g := newGroup(t)
	spec := shellSpec("etcd", `echo '{"level":"panic","error":"no space left on device"}'; echo 'panic: x'
		for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do echo "frame $i"; echo "	file:$i"; done; exit 2`)
	spec.Ready = readLog(g, "etcd", "never")
	err := g.Start(t.Context(), spec)
	var failed *StartError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(failed.Tail, "no space left") {
		t.Fatalf("the tail alone already shows the reason:\n%s", failed.Tail)
	}
	want := "its log reports: {\"level\":\"panic\",\"error\":\"no space left on device\"}\nthe end of "
	if !strings.Contains(err.Error(), want) {
		t.Errorf("error lacks %q:\n%v", want, err)
	}
}

func TestReasonNotRepeated(t *testing.T) {
	err := &StartError{Name: "web", Err: errors.New("x"), LogPath: "log", Reason: "panic: x", Tail: "up\npanic: x"}
	if text := err.Error(); strings.Count(text, "panic: x") != 1 {
		t.Error(text)
	}
}
