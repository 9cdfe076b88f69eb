// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api"
	"sluice.dev/cmd/sluice/up"
)

// NewRootCommand is the command sluice with all that is below it.
func NewRootCommand() *cobra.Command {
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

// addDirFlag is the folder of the embedded cluster, for commands about nothing else.
func addDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", ".sluice", "the cluster's `folder`: data, keys, kubeconfig, logs")
}

// addClusterFlags say which cluster is meant, for commands about any.
func addClusterFlags(cmd *cobra.Command, options *ClusterOptions) {
	flags := cmd.Flags()
	flags.StringVar(&options.Dir, "dir", "", "the `folder` of an embedded cluster: its kubeconfig and its policy time")
	flags.StringVar(&options.Kubeconfig, "kubeconfig", "", "path of the kubeconfig `file` (default: KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(&options.Context, "context", "", "the `context` in the kubeconfig (default: its current one)")
}

// addNamespaceFlag is the namespace that is meant, as kubectl has it.
func addNamespaceFlag(cmd *cobra.Command, options *ClusterOptions) {
	cmd.Flags().StringVarP(&options.Namespace, "namespace", "n", "", "the `namespace` (default: the context's)")
}

// addOutputFlag is the form of the output: the first of forms unless said otherwise.
func addOutputFlag(cmd *cobra.Command, output *string, forms ...string) {
	cmd.Flags().StringVarP(output, "output", "o", forms[0], "the `form` of the output: "+strings.Join(forms, ", "))
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(forms, *output) {
			return fmt.Errorf("--output %q: want %s", *output, strings.Join(forms, " or "))
		}
		if before != nil {
			return before(cmd, args)
		}
		return nil
	}
}

// connectCluster finds the cluster that is meant. What the API server warns of is told on
// the command's standard error.
func connectCluster(cmd *cobra.Command, options ClusterOptions) (*ClusterClient, error) {
	options.Warnings = cmd.ErrOrStderr()
	return NewClusterClient(options)
}

// scaleFlag is the value of a flag: how fast policy time runs.
type scaleFlag float64

// Set implements pflag.Value. The error begins with the value.
func (s *scaleFlag) Set(text string) error {
	value, err := parseScale(text)
	*s = scaleFlag(value)
	return err
}

// String implements pflag.Value; empty where the flag was not given.
func (s *scaleFlag) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(*s), 'f', -1, 64)
}

// Type implements pflag.Value.
func (s *scaleFlag) Type() string { return "N" }

func parseScale(text string) (float64, error) {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q: want a number from 1 to 3600", text)
	}
	return value, up.ValidateScale(value)
}
