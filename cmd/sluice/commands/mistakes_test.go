// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/shlex"
)

var (
	// adviceCommand matches a command of sluice with its arguments in a message or in backquotes.
	adviceCommand = regexp.MustCompile(`(?:\x60|with |: +)sluice ([a-z][a-z0-9 ./-]*[a-z0-9])`)
	// adviceFlag matches a flag of sluice submit in a message.
	adviceFlag = regexp.MustCompile(`(?:^|[ (\x60])--([a-z][a-z-]+)`)
)

// Each of the fifteen mistakes of docs/researcher/mistakes.md has a message. The commands and the flags that the messages and the
// page name exist, and accept their arguments. TestMistakesOfResearchers in test/e2e shows that the messages are those.
func TestMistakesNameCommands(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/researcher/mistakes.md")
	if err != nil {
		t.Fatal(err)
	}
	submit := newSubmitCommand()
	mistakes, commands, flags := 0, 0, 0
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if typed, isTyped := strings.CutPrefix(line, "$ sluice "); isTyped {
			arguments, err := shlex.Split(typed)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := NewRootCommand().Find(PrepareArguments(arguments)); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			continue
		}
		message, isMessage := strings.CutPrefix(line, "sluice: ")
		if isMessage {
			mistakes++
			if strings.Count(message, ":") == 0 || len(message) < 30 {
				t.Errorf("%q does not say what to do", message)
			}
		}
		for _, advice := range adviceCommand.FindAllStringSubmatch(message, -1) {
			commands++
			checkAdvice(t, strings.Fields(advice[1]))
		}
		for _, advice := range adviceFlag.FindAllStringSubmatch(message, -1) {
			flags++
			if submit.Flags().Lookup(advice[1]) == nil {
				t.Errorf("%s: sluice submit has no flag --%s", line, advice[1])
			}
		}
	}
	if mistakes != 15 || commands < 5 || flags < 10 {
		t.Errorf("found %d mistakes, %d commands and %d flags", mistakes, commands, flags)
	}
}

// checkAdvice reports whether a command exists and accepts its arguments.
func checkAdvice(t *testing.T, arguments []string) {
	t.Helper()
	command, rest, err := NewRootCommand().Find(arguments)
	if err != nil {
		t.Errorf("sluice %v: %v", arguments, err)
		return
	}
	if len(rest) == 0 { // the page names the command alone
		return
	}
	if err := command.ParseFlags(rest); err != nil {
		t.Errorf("sluice %v: %v", arguments, err)
	} else if err := command.ValidateArgs(command.Flags().Args()); err != nil {
		t.Errorf("sluice %v: %v", arguments, err)
	}
}
