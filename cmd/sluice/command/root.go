// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api"
)

// Root is the command sluice with all that is below it.
func Root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "The governance layer for shared GPU clusters on Kubernetes",
		Long: `sluice looks after a GPU cluster that is governed by Sluice, and runs a whole one
on this machine to try it out: a real Kubernetes with simulated DGX nodes.`,
		Version:       api.Version,
		SilenceErrors: true, // main prints them once
		SilenceUsage:  true, // what went wrong is not lost under a page of flags
		PersistentPreRun: func(*cobra.Command, []string) {
			// Errors come back to us; the libraries have nothing to add to them.
			ctrl.SetLogger(logr.Discard())
		},
	}
	root.AddCommand(
		upCommand(), downCommand(), statusCommand(), clockCommand(),
		clocksCommand(), reportCommand(),
		extendCommand(), extensionsCommand(), approveCommand(), refuseCommand(),
		noticesCommand(), mailCommand(),
		brakeCommand(), simulateCommand(),
	)
	return root
}
