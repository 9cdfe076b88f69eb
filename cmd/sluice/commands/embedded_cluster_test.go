// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What help shows as an example can be typed: sluice's own commands parse, and
// all others stand in the tour of README.md, which a test runs.
func TestCommandExamplesParse(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, command := range NewRootCommand().Commands() {
		for line := range strings.Lines(command.Example) {
			line = strings.TrimSpace(line)
			if line == "" {
				continue
			}
			seen++
			words := strings.Fields(line)
			if words[0] != "sluice" {
				if !strings.Contains(string(readme), "\n$ "+line+"\n") {
					t.Errorf("sluice %s --help shows %q, which the README's tour does not run", command.Name(), line)
				}
				continue
			}
			named, flags, err := NewRootCommand().Find(words[1:])
			if err == nil {
				err = named.ParseFlags(flags)
			}
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	if seen == 0 {
		t.Error("no command has an example")
	}
}
