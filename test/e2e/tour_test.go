// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice.dev/test/cluster/build"
)

var update = flag.Bool("update", false, "write what the tour really prints into README.md")

// The tour of README.md runs as it is written, in a copy of the tree as a person
// would have cloned it, and prints what the README shows.
func TestTourOfTheREADME(t *testing.T) {
	root, err := build.Root()
	if err != nil {
		t.Fatal(err)
	}
	readme := filepath.Join(root, "README.md")
	raw, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	steps := parseTour(string(raw))
	if len(steps) < 10 {
		t.Fatalf("found only %d commands in %s", len(steps), readme)
	}
	printed := runTour(t, copyTree(t, root), steps)
	if *update {
		if err := os.WriteFile(readme, []byte(rewriteTour(string(raw), printed)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i, step := range steps {
		if !matches(step.output, printed[i]) {
			t.Errorf("$ %s\nprints\n%s\nand the README shows\n%s\n(go test ./test/e2e -run Tour -update writes it anew)",
				step.command, strings.Join(printed[i], "\n"), strings.Join(step.output, "\n"))
		}
	}
}

// copyTree copies what git would have cloned: no binaries, no clusters.
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
		if name := entry.Name(); name == "bin" || strings.HasPrefix(name, ".") {
			continue
		}
		if out, err := exec.CommandContext(t.Context(), "cp", "-r", filepath.Join(root, entry.Name()), dir).CombinedOutput(); err != nil {
			t.Fatalf("copy %s: %v %s", entry.Name(), err, out)
		}
	}
	return dir
}

// mark stands before each command's output.
const mark = "\x01next\x01"

// runTour types the commands into one shell, and returns what each printed.
func runTour(t *testing.T, dir string, steps []step) [][]string {
	t.Helper()
	var script strings.Builder
	script.WriteString("exec 2>&1\n")
	for _, s := range steps {
		script.WriteString("echo '" + mark + "'\n" + s.command + "\n")
	}
	cmd := exec.CommandContext(t.Context(), "bash")
	cmd.Dir = dir
	// A person's shell is not below another make, which would make this one talk.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "MAKE") || strings.HasPrefix(entry, "MFLAGS=")
	})
	cmd.Stdin = strings.NewReader(script.String())
	t.Cleanup(func() {
		down := exec.Command("bin/sluice", "down")
		down.Dir = dir
		_ = down.Run() // whatever the tour has left running
	})
	out, err := cmd.Output()
	parts := strings.Split(string(out), mark+"\n")
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
