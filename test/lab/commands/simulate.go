// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"sluice.dev/test/lab/cluster/fakekubelet"
	"sluice.dev/test/lab/cluster/launcher"
	"sluice.dev/test/lab/cluster/mailsink"
	"sluice.dev/test/lab/cluster/process"
)

// newSimulateCommand returns the hidden commands of the simulation, which `sluice
// up` runs as processes.
func newSimulateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "simulate", Short: "Run a part of the simulation", Hidden: true}
	cmd.AddCommand(newSimulateKubeletCommand(), newSimulateMailCommand(), newSimulatePodsCommand())
	return cmd
}

func newSimulateKubeletCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "kubelet", Short: "Run the kubelets and device plugins of the simulated nodes", Args: cobra.NoArgs}
	path := cmd.Flags().String("config", "", "Path of a `file` of kind FakeKubeletConfig")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := fakekubelet.LoadConfig(*path)
		if err != nil {
			return err
		}
		return fakekubelet.Run(cmd.Context(), config)
	}
	return cmd
}

func newSimulateMailCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "mail", Short: "Run a mail server that keeps each mail as a file", Args: cobra.NoArgs}
	path := cmd.Flags().String("config", "", "Path of a `file` of kind MailSinkConfig")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := mailsink.LoadConfig(*path)
		if err != nil {
			return err
		}
		return mailsink.Run(cmd.Context(), config, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
	}
	return cmd
}

func newSimulatePodsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "pods", Short: "Run the pods of namespaces as processes, without a kubelet, for tests", Args: cobra.NoArgs}
	kubeconfig := cmd.Flags().String("kubeconfig", "", "Path of the kubeconfig `file`")
	namespaces := cmd.Flags().StringSlice("namespace", nil, "Namespaces of the pods")
	dir := cmd.Flags().String("dir", "", "Folder of the pods' files and logs")
	programs := cmd.Flags().StringToString("program", nil, "Programs by the name of their image, as NAME=PATH")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		api, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
		if err != nil {
			return fmt.Errorf("read kubeconfig: %w", err)
		}
		group, err := process.NewGroup(*dir)
		if err != nil {
			return err
		}
		err = launcher.Run(cmd.Context(), launcher.Config{
			API: api, Namespaces: *namespaces, Dir: filepath.Join(*dir, "pods"), Group: group, Programs: *programs,
			HostFolder: func(_, path string) string { return filepath.Join(*dir, "node", path) },
			Log:        slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
		})
		return errors.Join(err, group.Stop(context.WithoutCancel(cmd.Context())))
	}
	return cmd
}
