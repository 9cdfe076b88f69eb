// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sluice is Sluice's command line, also as `kubectl sluice`.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/cmd/sluice/command"
	"sluice.dev/cmd/sluice/show"
)

func main() {
	root := command.Root()
	if err := root.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "sluice:", show.CleanLines(err.Error()))
		os.Exit(1)
	}
}
