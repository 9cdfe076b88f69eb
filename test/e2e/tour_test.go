// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice.dev/test/clustertest"
)

var update = flag.Bool("update", false, "write the output of the tour into its documents, and the golden files")

// TestTour runs docs/tour.md as it is written, in a copy of the tree as git clones it. It expects the
// output that the page shows. README.md shows some of these commands, in the same order.
func TestTour(t *testing.T) {
	t.Parallel() // on a cluster of its own
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	page := readTour(t, filepath.Join(root, "docs", "tour.md"), 20)
	readme := readTour(t, filepath.Join(root, "README.md"), 10)
	printed := runTour(t, copyTree(t, root), page.steps)
	page.compare(t, printed)
	readme.compare(t, selectOutput(t, page.steps, printed, readme.steps))
}

// tourDocument is a document with commands and their output.
type tourDocument struct {
	path, text string
	steps      []step
}

func readTour(t *testing.T, path string, atLeast int) tourDocument {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	document := tourDocument{path: path, text: string(raw), steps: parseTour(string(raw))}
	if len(document.steps) < atLeast {
		t.Fatalf("found only %d commands in %s", len(document.steps), path)
	}
	return document
}

// selectOutput returns the output of some of the steps, which must be in the same order.
func selectOutput(t *testing.T, steps []step, printed [][]string, some []step) [][]string {
	t.Helper()
	selected := make([][]string, len(some))
	next := 0
	for i, s := range some {
		at := slices.IndexFunc(steps[next:], func(other step) bool { return other.command == s.command })
		if at < 0 {
			t.Fatalf("the tour has no command %q after %q", s.command, steps[max(next-1, 0)].command)
		}
		selected[i] = printed[next+at]
		next += at + 1
	}
	return selected
}

// compare compares the document with what its commands printed, or updates the document.
func (d tourDocument) compare(t *testing.T, printed [][]string) {
	t.Helper()
	if *update {
		for i, step := range d.steps {
			if matches(step.output, printed[i]) {
				printed[i] = step.output // with what it leaves out
			}
		}
		if err := os.WriteFile(d.path, []byte(rewriteTour(d.text, printed)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i, step := range d.steps {
		if !matches(step.output, printed[i]) {
			t.Errorf("$ %s\nprints\n%s\nand %s shows\n%s\n(go test ./test/e2e -run %s -update writes it)",
				step.command, strings.Join(printed[i], "\n"), d.path, strings.Join(step.output, "\n"), t.Name())
		}
	}
}

// copyTree copies the tree as after a clone: no binaries, no clusters.
func copyTree(t *testing.T, root string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sluice-tour-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if name := entry.Name(); slices.Contains([]string{"bin", ".git", ".sluice"}, name) {
			continue
		}
		if out, err := exec.CommandContext(t.Context(), "cp", "-r", filepath.Join(root, entry.Name()), dir).CombinedOutput(); err != nil {
			t.Fatalf("copy %s: %v %s", entry.Name(), err, out)
		}
	}
	return dir
}

// outputMarker separates the outputs of the commands.
const outputMarker = "\x01next\x01"

// runTour runs the commands in one shell, with further variables, and returns what each printed.
func runTour(t *testing.T, dir string, steps []step, environment ...string) [][]string {
	t.Helper()
	var script strings.Builder
	script.WriteString("exec 2>&1\n")
	for _, s := range steps {
		script.WriteString("echo '" + outputMarker + "'\n" + s.command + "\n")
	}
	cmd := exec.CommandContext(t.Context(), "bash")
	cmd.Dir = dir
	// The environment must not contain the variables of an outer make, which change make's
	// output.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "MAKE") || strings.HasPrefix(entry, "MFLAGS=") || strings.HasPrefix(entry, "GOWORK=") // of this tree
	})
	cmd.Env = append(cmd.Env, environment...)
	cmd.Stdin = strings.NewReader(script.String())
	t.Cleanup(func() {
		down := exec.Command("bin/sluice", "down")
		down.Dir = dir
		_ = down.Run() // stop the cluster of an incomplete tour
	})
	out, err := cmd.Output()
	parts := strings.Split(string(out), outputMarker+"\n")
	if len(parts) != len(steps)+1 {
		t.Fatalf("the tour ended early, after %d of %d commands: %v\n%s", len(parts)-1, len(steps), err, out)
	}
	printed := make([][]string, len(steps))
	for i := range steps {
		printed[i] = strings.Split(strings.TrimRight(parts[i+1], "\n"), "\n")
		for j, line := range printed[i] {
			printed[i][j] = strings.TrimRight(line, " ")
		}
	}
	return printed
}

// step is one command of a tour and the output that the document shows.
type step struct {
	command string
	output  []string
	// isFile: the command writes a file that the document shows.
	isFile bool
}

const (
	blockStart, blockEnd = "```console", "```"
	prompt               = "$ "
	// elision stands for any number of lines.
	elision = "..."
)

// parseTour returns the commands in the console blocks of a Markdown text.
func parseTour(markdown string) []step {
	var steps []step
	inside := false
	for line := range strings.Lines(markdown) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == blockStart:
			inside = true
		case line == blockEnd:
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

// rewriteTour replaces the output under each command.
func rewriteTour(markdown string, printed [][]string) string {
	var out strings.Builder
	inside, n := false, 0
	for line := range strings.Lines(markdown) {
		text := strings.TrimRight(line, "\n")
		if text == blockStart || text == blockEnd {
			inside = text == blockStart
		} else if inside && !strings.HasPrefix(text, prompt) {
			continue
		}
		out.WriteString(line)
		if inside && strings.HasPrefix(text, prompt) {
			for _, outputLine := range stripVariableOutput(printed[n]) {
				out.WriteString(outputLine + "\n")
			}
			n++
		}
	}
	return out.String()
}

// stripVariableOutput elides what differs between machines: the build of the binaries and of
// the cluster's programs.
func stripVariableOutput(lines []string) []string {
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

// volatilePatterns match what differs between runs, with their replacements.
var volatilePatterns = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`\b(certificates|folding|gpuagent|lifecycle|webhook)(-[a-z0-9]{6,10})?-[a-z0-9]{5}\b`), "$1-xxxxx"},
	{regexp.MustCompile(`\b(context sluice of) \S+ now`), "$1 KUBECONFIG now"},
	{regexp.MustCompile(`\b(hyper1)-[a-z0-9]{5}\b`), "$1-xxxxx"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d \d\d:\d\d UTC`), "TIME"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m|h|d)(\d+(\.\d+)?s)?\b`), "AGE"},
	{regexp.MustCompile(`(Running|Completed|Pending) +\d+ `), "$1 N "},
	{regexp.MustCompile(`^Mail: \d+`), "Mail: N"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`\s+`), " "},
}

func normalizeLine(line string) string {
	for _, v := range volatilePatterns {
		line = v.pattern.ReplaceAllString(line, v.replacement)
	}
	return strings.TrimSpace(line)
}

// matches compares the shown output with the printed output line by line.
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
	return len(printed) > 0 && normalizeLine(shown[0]) == normalizeLine(printed[0]) && matches(shown[1:], printed[1:])
}

func TestMatches(t *testing.T) {
	tests := map[string]struct {
		shown, printed []string
		want           bool
	}{
		"same":                         {[]string{"a"}, []string{"a"}, true},
		"ages and spaces differ":       {[]string{"x  Running  12 0  5s"}, []string{"x Running 99999 0   2m10s"}, true},
		"a different word":             {[]string{"x ready"}, []string{"x refused"}, false},
		"an additional line":           {[]string{"a"}, []string{"a", "b"}, false},
		"a missing line":               {[]string{"a", "b"}, []string{"a"}, false},
		"elided":                       {[]string{"...", "c"}, []string{"a", "b", "c"}, true},
		"elided, with a different end": {[]string{"...", "c"}, []string{"a", "b", "d"}, false},
		"nothing shown":                {nil, []string{"a"}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := matches(tc.shown, tc.printed); got != tc.want {
				t.Errorf("matches = %v, want %v", got, tc.want)
			}
		})
	}
}
