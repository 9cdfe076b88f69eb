// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package commands has the commands of sluice-lab, which runs Kubernetes with Sluice and simulated nodes on one machine. Users reach
// them as commands of sluice.
package commands

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api/config"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/test/lab/up"
)

// NewRootCommand returns the command sluice-lab with all its subcommands. Its texts name the commands as commands of program.
func NewRootCommand(program string) *cobra.Command {
	root := &cobra.Command{
		Use:           "sluice",
		Short:         "Run a Kubernetes cluster with Sluice on this machine",
		Version:       config.VersionText(),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: program},
		SilenceErrors: true, // main prints them once
		SilenceUsage:  true, // the usage would hide the error
	}
	noColor := root.PersistentFlags().Bool("no-color", false, "Print without colors")
	root.PersistentPreRun = func(*cobra.Command, []string) {
		ctrl.SetLogger(logr.Discard()) // the commands return their errors
		if *noColor {
			// Only a writer that is a terminal gets colors.
			root.SetOut(struct{ io.Writer }{root.OutOrStdout()})
		}
	}
	root.CompletionOptions.DisableDefaultCmd = true
	mails := &cobra.Command{Use: "mail", Short: "Show the mail that an embedded cluster sent", Long: mailHelp}
	mails.AddCommand(newMailListCommand(), newMailShowCommand())
	times := &cobra.Command{Use: "time", Short: "Show or advance the policy time of an embedded cluster", Long: policyTimeHelp}
	times.AddCommand(newTimeShowCommand(), newTimeAdvanceCommand(), newTimeScaleCommand(), newTimeNextCommand())
	for _, group := range []*cobra.Command{mails, times} {
		group.Args = cobra.NoArgs
		group.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	root.AddCommand(newUpCommand(), newDownCommand(), newStatusCommand(), times, mails,
		newControlPlaneCommand(), newProgramsCommand(), newSimulateCommand())
	return root
}

// clusterFlags select an embedded cluster.
type clusterFlags struct{ dir, kubeconfig string }

func addClusterFlags(cmd *cobra.Command) *clusterFlags {
	f := &clusterFlags{}
	cmd.Flags().StringVar(&f.dir, "dir", "", "Folder of the cluster (default: the folder of the kubeconfig)")
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "Path of the cluster's kubeconfig `file` (default: KUBECONFIG)")
	return f
}

// embeddedDir returns the folder of the cluster: that of --dir, or the first folder of a kubeconfig that has one. It fails with
// [up.ErrNoCluster] if there is none.
func (f *clusterFlags) embeddedDir() (string, error) {
	if f.dir != "" {
		dir, err := filepath.Abs(f.dir)
		if err != nil {
			return "", fmt.Errorf("--dir %s: %w", f.dir, err)
		}
		return dir, up.CheckDir(dir)
	}
	for _, file := range filepath.SplitList(cmp.Or(f.kubeconfig, os.Getenv("KUBECONFIG"))) {
		dir, err := filepath.Abs(filepath.Dir(file))
		if err != nil {
			return "", fmt.Errorf("kubeconfig %s: %w", file, err)
		}
		if up.CheckDir(dir) == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%w: the kubeconfig is not one of `sluice up`; "+
		"name the cluster's folder with --dir, or set KUBECONFIG", up.ErrNoCluster)
}

// outputFlag is the flag -o: a format for people, or one for programs.
type outputFlag struct{ format string }

func addOutputFlag(cmd *cobra.Command, formats ...string) *outputFlag {
	f := &outputFlag{}
	choices := append(formats, "json", "yaml")
	cmd.Flags().StringVarP(&f.format, "output", "o", choices[0], "Output format: "+strings.Join(choices, ", "))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(choices, f.format) {
			return fmt.Errorf("--output %q: want %s", f.format, strings.Join(choices, ", "))
		}
		return nil
	}
	return f
}

// print prints value as JSON or YAML, or calls text.
func (f *outputFlag) print(output io.Writer, value any, text func(io.Writer) error) error {
	switch f.format {
	case "json":
		return printer.WriteJSON(output, value)
	case "yaml":
		return printer.WriteYAML(output, value)
	default:
		return text(output)
	}
}

// printTable prints value as JSON or YAML, or the table. An empty table becomes a message on standard error that names the resources.
func (f *outputFlag) printTable(cmd *cobra.Command, value any, table printer.Table, resources string) error {
	return f.print(cmd.OutOrStdout(), value, func(output io.Writer) error {
		if len(table.Rows) == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "No %s found.\n", resources)
			return nil
		}
		return table.Write(output, f.format == "wide")
	})
}

// printText prints value as JSON, YAML or text.
func (f *outputFlag) printText(output io.Writer, value any, text string) error {
	return f.print(output, value, func(output io.Writer) error {
		_, err := io.WriteString(output, text)
		return err
	})
}
