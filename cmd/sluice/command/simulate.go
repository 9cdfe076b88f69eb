// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"log/slog"

	"github.com/spf13/cobra"

	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/mailsink"
)

// simulateCommand holds the parts of the simulation, of hardware and mail, that are processes of their
// own under `sluice up`. People do not call them, so help does not list them.
func simulateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "simulate",
		Short:  "Play a part of what surrounds Sluice",
		Hidden: true,
	}
	cmd.AddCommand(fakekubeletCommand(), mailsinkCommand())
	return cmd
}

func fakekubeletCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "kubelet",
		Short: "Play the kubelet's device manager and the device plugin of the simulated nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := fakekubelet.LoadConfig(path)
			if err != nil {
				return err
			}
			return fakekubelet.Run(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "path of the configuration `file`, of kind FakeKubeletConfig")
	return cmd
}

func mailsinkCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "mail",
		Short: "Play the mail server, which keeps each mail as a file",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := mailsink.LoadConfig(path)
			if err != nil {
				return err
			}
			return mailsink.Run(cmd.Context(), cfg, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "path of the configuration `file`, of kind MailSinkConfig")
	return cmd
}
