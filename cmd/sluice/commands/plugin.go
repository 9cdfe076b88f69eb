// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// Invocation is how the user calls the program.
type Invocation string

// The invocations. The binary has a second name, kubectl-sluice, as plugin of kubectl.
const (
	InvokedAsSluice Invocation = "sluice"
	InvokedAsPlugin Invocation = "kubectl sluice"
)

// InvocationOf returns how a program with this name is called.
func InvocationOf(program string) Invocation {
	if strings.HasPrefix(filepath.Base(program), "kubectl-") {
		return InvokedAsPlugin
	}
	return InvokedAsSluice
}

// exampleCommand matches the name of the program where a text has a command: in an example or between backticks.
var exampleCommand = regexp.MustCompile("(?m)(^ *|`|\\| )sluice( [a-z]|`)")

// Text returns a text whose commands are called as the user calls them.
func (i Invocation) Text(text string) string {
	if i == InvokedAsSluice {
		return text
	}
	return exampleCommand.ReplaceAllString(text, "${1}"+string(i)+"${2}")
}

// RootCommand returns the command sluice whose help has the name by which the user calls it.
func (i Invocation) RootCommand() *cobra.Command {
	root := NewRootCommand()
	if i != InvokedAsSluice {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: string(i)}
		i.renameExamples(root)
	}
	return root
}

func (i Invocation) renameExamples(cmd *cobra.Command) {
	cmd.Example = i.Text(cmd.Example)
	if cmd.HasParent() { // the text of the root is about the program
		cmd.Long = i.Text(cmd.Long)
	}
	for _, child := range cmd.Commands() {
		i.renameExamples(child)
	}
}
