// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const tutorialPage = "../../../docs/platform/policy-tutorial.md"

// The tutorial is run up to the roll-out, which needs a cluster: the test writes the files that the page shows, and compares the output
// of its commands.
func TestPolicyTutorial(t *testing.T) {
	raw, err := os.ReadFile(tutorialPage)
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	path, err := filepath.Abs(tutorialPage)
	if err != nil {
		t.Fatal(err)
	}
	offline, rollOut, found := strings.Cut(page, "\n## 4. ")
	if !found {
		t.Fatal("the page has no section 4")
	}
	t.Chdir(t.TempDir())
	var written strings.Builder
	var file string
	console, commands := false, 0
	for line := range strings.Lines(offline) {
		text := strings.TrimRight(line, "\n")
		_, name, isFile := strings.Cut(text, " ")
		switch {
		case text == "```console":
			console = true
		case text == "```":
			console, file = false, ""
		case strings.HasPrefix(text, "```") && isFile:
			file = name
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		case file != "":
			appendToFile(t, file, line)
		case console && !strings.HasPrefix(text, "$ "):
			continue // the output follows its command
		}
		written.WriteString(line)
		if console && strings.HasPrefix(text, "$ ") {
			commands++
			written.WriteString(runTutorialLine(t, strings.TrimPrefix(text, "$ ")))
		}
	}
	if commands < 6 {
		t.Errorf("the page has %d commands before its section 4", commands)
	}
	if got := written.String() + "\n## 4. " + rollOut; *update && got != page {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if got != page {
		t.Errorf("run go test ./cmd/sluice/commands -run TestPolicyTutorial -update: the page becomes\n%s", written.String())
	}
}

func appendToFile(t *testing.T, name, line string) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(line); err != nil {
		t.Fatal(err)
	}
}

// runTutorialLine returns the output of commands that are joined by &&. Each of them is mkdir or sluice, and succeeds.
func runTutorialLine(t *testing.T, line string) string {
	t.Helper()
	var output strings.Builder
	for command := range strings.SplitSeq(line, " && ") {
		words := strings.Fields(command)
		if words[0] == "mkdir" {
			if err := os.Mkdir(words[1], 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if words[0] != "sluice" {
			t.Fatalf("%s: the test runs mkdir and sluice only", command)
		}
		printed, err := runCommand(t, words[1:]...)
		// The status of eval says that the object is denied.
		if denied := strings.HasPrefix(command, "sluice policy eval"); (err != nil) != denied {
			t.Fatalf("%s: %v\n%s", command, err, printed)
		}
		output.WriteString(printed)
	}
	return output.String()
}
