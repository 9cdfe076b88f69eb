// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/printer"
)

// Every command has a short text and an example. The examples of sluice parse, and
// the others are in the tour of README.md, which a test runs.
func TestCommandHelp(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			if !child.Hidden {
				check(child)
			}
		}
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" && !cmd.HasSubCommands() {
			t.Errorf("%s needs a short text, a long text and, without subcommands, an example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			checkExample(t, cmd, strings.TrimSpace(line), string(readme))
		}
	}
	check(NewRootCommand())
}

func checkExample(t *testing.T, cmd *cobra.Command, line, readme string) {
	t.Helper()
	if line == "" || strings.HasPrefix(line, "# ") {
		return
	}
	words := strings.Fields(line)
	if words[0] != "sluice" {
		if !strings.Contains(readme, "\n$ "+line+"\n") {
			t.Errorf("%s --help has the example %q, which the tour of README.md does not run", cmd.CommandPath(), line)
		}
		return
	}
	found, flags, err := NewRootCommand().Find(PrepareArguments(words[1:]))
	if err == nil {
		err = found.ParseFlags(flags)
	}
	if err != nil || found.CommandPath() != cmd.CommandPath() {
		t.Errorf("%s --help has the example %q, which runs %s: %v", cmd.CommandPath(), line, found.CommandPath(), err)
	}
}

// The suggestion after a misspelled command is readable as main prints it.
func TestMisspelledCommand(t *testing.T) {
	_, err := runCommand(t, "sumbit")
	if err == nil {
		t.Fatal("sumbit is a command")
	}
	if got := printer.SanitizeLines(err.Error()); !strings.Contains(got, "\n  submit") || strings.Contains(got, `\t`) {
		t.Errorf("sluice sumbit prints\n%s", got)
	}
}

// Without sluice-lab beside this program, the commands for an embedded cluster say where to get it.
func TestLabCommandsNameTheLab(t *testing.T) {
	for _, args := range [][]string{{"up", "--detach"}, {"down"}, {"status", "--help"}, {"time", "advance", "1d"}, {"mail", "list", "-o", "json"}} {
		_, err := runCommand(t, args...)
		if err == nil || !strings.Contains(err.Error(), "needs the program sluice-lab") || !strings.Contains(err.Error(), "`make build`") {
			t.Errorf("sluice %v: %v", args, err)
		}
	}
}
