// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// step is one command of the tour and what the README shows below it.
type step struct {
	command string
	output  []string
}

const (
	opens, closes = "```console", "```"
	prompt        = "$ "
	// elision stands for any number of lines.
	elision = "..."
)

// parseTour finds the commands in the console blocks of a markdown text.
func parseTour(markdown string) []step {
	var steps []step
	inside := false
	for line := range strings.Lines(markdown) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == opens:
			inside = true
		case line == closes:
			inside = false
		case !inside:
		case strings.HasPrefix(line, prompt):
			steps = append(steps, step{command: strings.TrimPrefix(line, prompt)})
		case len(steps) > 0:
			last := &steps[len(steps)-1]
			last.output = append(last.output, line)
		}
	}
	return steps
}

// rewriteTour puts what was printed under each command.
func rewriteTour(markdown string, printed [][]string) string {
	var out strings.Builder
	inside, n := false, 0
	for line := range strings.Lines(markdown) {
		text := strings.TrimRight(line, "\n")
		if text == opens || text == closes {
			inside = text == opens
		} else if inside && !strings.HasPrefix(text, prompt) {
			continue
		}
		out.WriteString(line)
		if inside && strings.HasPrefix(text, prompt) {
			for _, shown := range abridge(printed[n]) {
				out.WriteString(shown + "\n")
			}
			n++
		}
	}
	return out.String()
}

// abridge leaves out what differs from one machine to the next: how the
// binaries are built, and whether the cluster's programs had to be.
func abridge(lines []string) []string {
	for i, line := range slices.Backward(lines) {
		if strings.Contains(line, "go build") {
			lines = append([]string{elision}, lines[i+1:]...)
			break
		}
	}
	if len(lines) == 1 && lines[0] == "" {
		return nil
	}
	return lines
}

// volatile is what differs from run to run, and what stands for it.
var volatile = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m|h|d)(\d+s)?\b`), "AGE"},
	{regexp.MustCompile(`(Running|Completed|Pending) +\d+ `), "$1 N "},
	{regexp.MustCompile(`^Mail: \d+`), "Mail: N"},
	{regexp.MustCompile(`folding-[a-z0-9]{5}\b`), "folding-xxxxx"},
	{regexp.MustCompile(`\s+`), " "},
}

func normal(line string) string {
	for _, v := range volatile {
		line = v.what.ReplaceAllString(line, v.as)
	}
	return strings.TrimSpace(line)
}

// matches compares what is shown with what was printed, line by line.
func matches(shown, printed []string) bool {
	shown = slices.DeleteFunc(slices.Clone(shown), func(l string) bool { return strings.TrimSpace(l) == "" })
	printed = slices.DeleteFunc(slices.Clone(printed), func(l string) bool { return strings.TrimSpace(l) == "" })
	if len(shown) == 0 {
		return len(printed) == 0
	}
	if shown[0] == elision {
		for i := range len(printed) + 1 {
			if matches(shown[1:], printed[i:]) {
				return true
			}
		}
		return false
	}
	return len(printed) > 0 && normal(shown[0]) == normal(printed[0]) && matches(shown[1:], printed[1:])
}

func TestMatches(t *testing.T) {
	tests := map[string]struct {
		shown, printed []string
		want           bool
	}{
		"same":                     {[]string{"a"}, []string{"a"}, true},
		"ages and spaces differ":   {[]string{"x  Running  12 0  5s"}, []string{"x Running 99999 0   2m10s"}, true},
		"another word":             {[]string{"x ready"}, []string{"x refused"}, false},
		"one line more":            {[]string{"a"}, []string{"a", "b"}, false},
		"one line less":            {[]string{"a", "b"}, []string{"a"}, false},
		"elided":                   {[]string{"...", "c"}, []string{"a", "b", "c"}, true},
		"elided, and the end lies": {[]string{"...", "c"}, []string{"a", "b", "d"}, false},
		"nothing shown":            {nil, []string{"a"}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := matches(tc.shown, tc.printed); got != tc.want {
				t.Errorf("matches = %v, want %v", got, tc.want)
			}
		})
	}
}
