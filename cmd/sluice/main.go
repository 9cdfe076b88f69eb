// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sluice is the command line of Sluice, also as `kubectl sluice` under the name kubectl-sluice.
package main

import (
	"fmt"
	"os"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/cmd/sluice/commands"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/policies/check"
)

func main() {
	check.RunIfChild()
	invocation := commands.InvocationOf(os.Args[0])
	root := invocation.RootCommand()
	root.SetArgs(commands.PrepareArguments(os.Args[1:]))
	if err := root.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "sluice:", printer.SanitizeLines(invocation.Text(strings.TrimRight(err.Error(), "\n"))))
		os.Exit(commands.ExitStatus(err))
	}
}
