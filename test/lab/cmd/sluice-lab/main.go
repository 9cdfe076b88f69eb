// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sluice-lab runs Kubernetes with Sluice and simulated DGX nodes on one machine. The commands of sluice for an embedded cluster start it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/test/lab/commands"
)

func main() {
	program := "sluice"
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") {
		program = "kubectl sluice"
	}
	if err := commands.NewRootCommand(program).ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "sluice:", printer.SanitizeLines(strings.TrimRight(err.Error(), "\n")))
		os.Exit(1)
	}
}
