// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/connect"
	"sluice.dev/cmd/sluice/up"
)

// dirFlag is the folder of the embedded cluster, for commands about nothing else.
func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", ".sluice", "the cluster's `folder`: data, keys, kubeconfig, logs")
}

// clusterFlags say which cluster is meant, for commands about any.
func clusterFlags(cmd *cobra.Command, options *connect.Options) {
	flags := cmd.Flags()
	flags.StringVar(&options.Dir, "dir", "", "the `folder` of an embedded cluster: its kubeconfig and its policy time")
	flags.StringVar(&options.Kubeconfig, "kubeconfig", "", "path of the kubeconfig `file` (default: KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(&options.Context, "context", "", "the `context` in the kubeconfig (default: its current one)")
}

// namespaceFlag is the namespace that is meant, as kubectl has it.
func namespaceFlag(cmd *cobra.Command, options *connect.Options) {
	cmd.Flags().StringVarP(&options.Namespace, "namespace", "n", "", "the `namespace` (default: the context's)")
}

// outputFlag is the form of the output: the first of forms unless said otherwise.
func outputFlag(cmd *cobra.Command, output *string, forms ...string) {
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

// open finds the cluster that is meant. What the API server warns of is told on
// the command's standard error.
func open(cmd *cobra.Command, options connect.Options) (*connect.Cluster, error) {
	options.Warnings = cmd.ErrOrStderr()
	return connect.Open(options)
}

// scale is the value of a flag: how fast policy time runs.
type scale float64

// Set implements pflag.Value. The error begins with the value.
func (s *scale) Set(text string) error {
	value, err := parseScale(text)
	*s = scale(value)
	return err
}

// String implements pflag.Value; empty where the flag was not given.
func (s *scale) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(*s), 'f', -1, 64)
}

// Type implements pflag.Value.
func (s *scale) Type() string { return "N" }

func parseScale(text string) (float64, error) {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q: want a number from 1 to 3600", text)
	}
	return value, up.CheckScale(value)
}
