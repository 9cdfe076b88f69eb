// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/test/clustertest"
)

// TestPolicyTutorial runs docs/platform/policy-tutorial.md as it is written: it writes the files that the page shows, runs its
// commands, and expects the output that the page shows.
func TestPolicyTutorial(t *testing.T) {
	const ns = "tutorial"
	s := newDedicatedCluster(t) // the policies of other tests would be in the output
	s.createDepartment(t, ns, newPoolQuota("dgx", "1", "1"))
	s.createGovernedProject(t, ns, ns, newPoolQuota("dgx", "1", "1"))
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	page := readTour(t, filepath.Join(root, "docs", "platform", "policy-tutorial.md"), 15)
	steps := parseTutorial(page.text)
	printed := runTour(t, t.TempDir(), steps,
		"KUBECONFIG="+filepath.Join(s.dir, "kubeconfig"), "PATH="+filepath.Dir(s.binary)+":"+os.Getenv("PATH"))
	var ofCommands [][]string
	for i, step := range steps {
		if !step.isFile {
			ofCommands = append(ofCommands, printed[i])
		}
	}
	page.compare(t, ofCommands)
}

// parseTutorial returns the commands of a page, and for each block with a file name a command that writes the file, in their order.
func parseTutorial(markdown string) []step {
	var steps []step
	var file string
	var text strings.Builder
	console := false
	for line := range strings.Lines(markdown) {
		trimmed := strings.TrimRight(line, "\n")
		language, name, isFile := strings.Cut(strings.TrimPrefix(trimmed, blockEnd), " ")
		switch {
		case trimmed == blockStart:
			console = true
		case trimmed == blockEnd && file != "":
			steps = append(steps, step{command: "cat > " + file + " <<'END_OF_FILE'\n" + text.String() + "END_OF_FILE", isFile: true})
			file = ""
			text.Reset()
		case trimmed == blockEnd:
			console = false
		case file != "":
			text.WriteString(line)
		case strings.HasPrefix(trimmed, blockEnd) && isFile && language != "":
			file = name
		case console && strings.HasPrefix(trimmed, prompt):
			steps = append(steps, step{command: strings.TrimPrefix(trimmed, prompt)})
		}
	}
	return steps
}

func TestParseTutorial(t *testing.T) {
	const page = "```rego a.rego\npackage a\n```\n\n```console\n$ ls\na.rego\n```\n\n```yaml\na: 1\n```\n"
	steps := parseTutorial(page)
	if len(steps) != 2 || !steps[0].isFile || steps[0].command != "cat > a.rego <<'END_OF_FILE'\npackage a\nEND_OF_FILE" ||
		steps[1].isFile || steps[1].command != "ls" {
		t.Errorf("%+v", steps)
	}
}
