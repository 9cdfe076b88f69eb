// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// connectionFlag marks the flags of kubectl that few commands are called with. The help of a command leaves
// them out; `sluice options` lists them.
const connectionFlag = "sluice.dev/connection-flag"

// helpedFlags are kubectl's flags that the help of each command lists.
var helpedFlags = []string{"kubeconfig", "context", "namespace", "as"}

// addConnectionFlags adds kubectl's flags to a command, with the names of the kubeconfig as completion.
func addConnectionFlags(cmd *cobra.Command, f *clusterFlags) {
	f.AddFlags(cmd.Flags())
	for _, flag := range connectionFlags(f) {
		if !slices.Contains(helpedFlags, flag.Name) {
			added := cmd.Flags().Lookup(flag.Name)
			added.Annotations = map[string][]string{connectionFlag: {"true"}}
		}
	}
	// The namespaces are those of the contexts: members of a project may not list namespaces.
	complete := map[string]func(*clusterFlags) []string{
		"context": func(f *clusterFlags) []string { return f.kubeconfigNames().contexts },
		"cluster": func(f *clusterFlags) []string { return f.kubeconfigNames().clusters },
		"user":    func(f *clusterFlags) []string { return f.kubeconfigNames().users },
	}
	if f.Namespace != nil {
		complete["namespace"] = func(f *clusterFlags) []string { return f.kubeconfigNames().namespaces }
	}
	for name, names := range complete {
		completeFlag(cmd, name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return names(f), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// connectionFlags returns kubectl's flags, sorted.
func connectionFlags(f *clusterFlags) []*pflag.Flag {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddFlags(set)
	var flags []*pflag.Flag
	set.VisitAll(func(flag *pflag.Flag) { flags = append(flags, flag) })
	return flags
}

// kubeconfigNames are the sorted names in a kubeconfig.
type kubeconfigNames struct{ contexts, clusters, users, namespaces []string }

// kubeconfigNames returns the names in the kubeconfig; none if it cannot be read.
func (f *clusterFlags) kubeconfigNames() kubeconfigNames {
	if f.complete() != nil {
		return kubeconfigNames{}
	}
	raw, err := f.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return kubeconfigNames{}
	}
	namespaces := map[string]bool{}
	for _, context := range raw.Contexts {
		if context.Namespace != "" {
			namespaces[context.Namespace] = true
		}
	}
	return kubeconfigNames{
		contexts: slices.Sorted(maps.Keys(raw.Contexts)), clusters: slices.Sorted(maps.Keys(raw.Clusters)),
		users: slices.Sorted(maps.Keys(raw.AuthInfos)), namespaces: slices.Sorted(maps.Keys(namespaces)),
	}
}

// newOptionsCommand returns the command that lists kubectl's flags.
func newOptionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "options",
		Short: "List the flags that each command for a cluster accepts",
		Long: `List the flags of kubectl, which each command for a cluster accepts: the server, the
user, certificates, impersonation and timeouts.`,
		Example: `  # List kubectl's flags
  sluice options`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		listed := &cobra.Command{}
		addClusterFlags(listed, listScope)
		_, err := cmd.OutOrStdout().Write([]byte(listed.Flags().FlagUsages()))
		return err
	}
	return cmd
}

// ownFlags returns the flags of a command without those that are only in `sluice options`.
func ownFlags(cmd *cobra.Command) *pflag.FlagSet {
	own := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	own.SortFlags = false
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Annotations[connectionFlag] == nil {
			own.AddFlag(flag)
		}
	})
	return own
}

// hasConnectionFlags reports whether a command accepts kubectl's flags.
func hasConnectionFlags(cmd *cobra.Command) bool {
	flag := cmd.LocalFlags().Lookup("request-timeout")
	return flag != nil && flag.Annotations[connectionFlag] != nil
}
