// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

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
		{"nothing like it", warning + "listening\nno panic: all is well\n", ""},
		{"the gravest and not the first", first + second + full + "}\n" + goPanic, full + "}"},
		{"without its stack", full + `,"stacktrace":"a\n\tb"}` + "\n", full + "}"},
		{"a plain panic", warning + goPanic, "panic: failed to open database"},
		{"Go's own last word", "fatal error: all goroutines are asleep\n", "fatal error: all goroutines are asleep"},
		{"klog", "I1121 11:45:39.1 main.go:1] up\nF1121 11:45:39.8 main.go:2] no certificate\n", "F1121 11:45:39.8 main.go:2] no certificate"},
		{"the first error", warning + first + second, strings.TrimSpace(first)},
		{"no line feed at the end", full + "}", full + "}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			before := "panic: of the run before\n"
			write(t, path, before+tt.content)
			if got := reason(path, int64(len(before))); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := reason(filepath.Join(t.TempDir(), "none"), 0); got != "" {
		t.Errorf("of no log: %q", got)
	}
}

// A program that dies with a long stack has its reason shown all the same.
func TestStartErrorShowsTheReasonBeforeAStack(t *testing.T) {
	g := newGroup(t)
	spec := shell("etcd", `echo '{"level":"panic","error":"no space left on device"}'; echo 'panic: x'
		for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do echo "frame $i"; echo "	file:$i"; done; exit 2`)
	spec.Ready = said(g, "etcd", "never")
	err := g.Start(t.Context(), spec)
	var failed *StartError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(failed.Tail, "no space left") {
		t.Fatalf("the tail is long enough by itself:\n%s", failed.Tail)
	}
	if want := "it says: {\"level\":\"panic\",\"error\":\"no space left on device\"}\nthe end of "; !strings.Contains(err.Error(), want) {
		t.Errorf("error lacks %q:\n%v", want, err)
	}
}

func TestReasonIsNotSaidTwice(t *testing.T) {
	err := &StartError{Name: "web", Err: errors.New("x"), LogPath: "log", Reason: "panic: x", Tail: "up\npanic: x"}
	if text := err.Error(); strings.Count(text, "panic: x") != 1 {
		t.Error(text)
	}
}
