// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package printer_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/cmd/sluice/printer"
)

func TestSanitize(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"anna.müller@h2.de":     "anna.müller@h2.de",
		`a "quoted" \ name, 名前`: `a "quoted" \ name, 名前`,
		"red\x1b[31m":           `red\x1b[31m`,
		"c1 \u009b31m":          `c1 \u009b31m`,
		"two\nlines\r\t":        `two\nlines\r\t`,
		"\u202egnp.exe":         `\u202egnp.exe`,
		"a\u2028b\x7f":          `a\u2028b\x7f`,
		"broken \xff\xfe":       `broken \xff\xfe`,
		"null\x00":              `null\x00`,
	} {
		if got := printer.Sanitize(text); got != want {
			t.Errorf("Sanitize(%q) = %s, want %s", text, got, want)
		}
	}
	if got := printer.SanitizeLines("a\x07\n\tb"); got != `a\a`+"\n  b" {
		t.Errorf("SanitizeLines = %q", got)
	}
}

func FuzzSanitize(f *testing.F) {
	f.Add("red\x1b[31m\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range printer.Sanitize(text) {
			if !strconv.IsGraphic(r) {
				t.Fatalf("Sanitize(%q) has %q", text, r)
			}
		}
	})
}

func FuzzWriteJSON(f *testing.F) {
	f.Add("red\x1b[31m\u202e\u009b\U000e0041<&>")
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "?")
		var out bytes.Buffer
		if err := printer.WriteJSON(&out, []string{text}); err != nil {
			t.Fatal(err)
		}
		for _, r := range out.String() {
			if r != '\n' && !strconv.IsGraphic(r) {
				t.Fatalf("WriteJSON(%q) has %q", text, r)
			}
		}
		var back []string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back[0] != text {
			t.Fatalf("%q came back as %q: %v", text, back, err)
		}
	})
}

func TestWriteYAML(t *testing.T) {
	var out bytes.Buffer
	value := map[string]any{"name": "red\x1b[31m\u202e", "rows": []string{"a: b"}, "none": []string{}}
	if err := printer.WriteYAML(&out, value); err != nil {
		t.Fatal(err)
	}
	want := "name: \"red\\e[31m\\u202e\"\nnone: []\nrows:\n- 'a: b'\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("the YAML differs (-want +got)\n%s", diff)
	}
}

func TestTableWrite(t *testing.T) {
	table := printer.Table{
		Columns: append(
			printer.Columns("NAME", "HOURS"),
			printer.Column{Name: "NODE", Wide: true},
			printer.Column{Name: "ZONE", Hidden: true},
			printer.Column{Name: "REASON"},
		),
		Rows: [][]string{{"名前", "7.5", "n1", "z", "\x1b[2J"}, {"a name", "1200.0", "", "z", ""}, {"", "0.0"}},
	}
	for wide, want := range map[bool]string{
		false: `NAME     HOURS    REASON
名前       7.5      \x1b[2J
a name   1200.0   -
-        0.0      -
`,
		true: `NAME     HOURS    NODE   REASON
名前       7.5      n1     \x1b[2J
a name   1200.0   -      -
-        0.0      -      -
`,
	} {
		var out bytes.Buffer
		if err := table.Write(&out, wide); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("the table differs, wide: %v (-want +got)\n%s", wide, diff)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for length, want := range map[time.Duration]string{
		-time.Hour:                        "0s",
		0:                                 "0s",
		999 * time.Millisecond:            "0s",
		59 * time.Second:                  "59s",
		30*time.Minute + 5*time.Second:    "30m5s",
		time.Hour + 59*time.Second:        "1h",
		3*time.Hour + 12*time.Minute + 59: "3h12m",
		48 * time.Hour:                    "48h",
		71*time.Hour + 59*time.Minute:     "71h59m",
		72 * time.Hour:                    "3d",
		240*time.Hour + 61*time.Minute:    "10d1h",
		1<<63 - 1:                         "106751d23h",
	} {
		if got := printer.FormatDuration(length); got != want {
			t.Errorf("FormatDuration(%v) = %s, want %s", length, got, want)
		}
	}
}

func TestFormatMinuteIncludesZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	// The hour that the end of summer time has twice.
	first := time.Date(2026, 10, 25, 0, 30, 7, 0, time.UTC)
	for at, want := range map[time.Time]string{
		first:                "2026-10-25 02:30 CEST",
		first.Add(time.Hour): "2026-10-25 02:30 CET",
	} {
		if got := printer.FormatMinute(at, berlin); got != want {
			t.Errorf("FormatMinute = %s, want %s", got, want)
		}
	}
	if got, want := printer.FormatSecond(first, time.UTC), "2026-10-25 00:30:07 UTC"; got != want {
		t.Errorf("FormatSecond = %s, want %s", got, want)
	}
}

func TestShellQuote(t *testing.T) {
	tests := map[string]string{
		"/tmp/a-b_c.d":  "/tmp/a-b_c.d",
		"":              "''",
		"it's me":       `'it'\''s me'`,
		"~/x":           "'~/x'",
		"a$(touch b);c": "'a$(touch b);c'",
		"two\nlines":    "'two\nlines'",
	}
	for text, want := range tests {
		if got := printer.ShellQuote(text); got != want {
			t.Errorf("ShellQuote(%q) = %s, want %s", text, got, want)
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+printer.ShellQuote(text)).Output()
		if err != nil || string(out) != text {
			t.Errorf("the shell reads ShellQuote(%q) as %q, %v", text, out, err)
		}
	}
}
