// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/cmd/sluice/uninstall"
)

const uninstallHelp = `Remove Sluice from a cluster. No workload, namespace of users, volume or MIG layout is
deleted, and no pod is stopped or restarted.

The webhook configurations and admission policies go first, then the components, then
finalizers, quotas, queues, and what Sluice wrote on nodes, namespaces and pods. The
command needs no component of Sluice, and can be run again after it was interrupted.
It prints what stays, and the command that starts each stopped workload.

Sluice's own objects, such as Projects, stay for another installation, unless
--delete-data is given.`

// uninstallTimeout is the longest time to wait for the components to end.
const uninstallTimeout = 3 * time.Minute

func newUninstallCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "uninstall [--dry-run] [--yes] [--delete-data]",
		Short: "Remove Sluice from a cluster without touching workloads",
		Long:  uninstallHelp,
		Example: `  # Show what would be removed
  sluice uninstall --dry-run

  # Remove Sluice without a question, as a Helm hook does
  sluice uninstall --yes

  # Delete Sluice's objects as well; asks for the cluster's name
  sluice uninstall --delete-data`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, clusterScope)
	dryRun := cmd.Flags().Bool("dry-run", false, "Print the plan, and change nothing")
	yes := cmd.Flags().Bool("yes", false, "Do not ask before the removal")
	deleteData := cmd.Flags().Bool("delete-data", false, "Delete Sluice's own objects and their kinds as well")
	confirmed := cmd.Flags().String("confirm", "", "Name of the cluster, which confirms --delete-data without a question")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		name, err := cluster.clusterName(c)
		if err != nil {
			return err
		}
		u := &uninstall.Uninstaller{
			Client: c, Mapper: c.RESTMapper(), Out: cmd.OutOrStdout(), DryRun: true, DeleteData: *deleteData,
			Timeout: uninstallTimeout, PollInterval: time.Second,
		}
		answers := bufio.NewScanner(cmd.InOrStdin())
		if *dryRun || !*yes {
			fmt.Fprintf(u.Out, "Cluster: %s\n", name)
			if err := u.Run(cmd.Context()); err != nil || *dryRun {
				return err
			}
			if err := ask(u.Out, answers, "Type yes to remove Sluice from "+name, "yes"); err != nil {
				return err
			}
		}
		if *deleteData {
			if err := confirmData(cmd.Context(), u, answers, name, *confirmed); err != nil {
				return err
			}
		}
		u.DryRun = false
		return u.Run(cmd.Context())
	}
	return cmd
}

// confirmData prints what is lost, and requires the cluster's name.
func confirmData(ctx context.Context, u *uninstall.Uninstaller, answers *bufio.Scanner, name, confirmed string) error {
	lost, err := u.CountData(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(u.Out, "--delete-data deletes, for good:\n  %s\n", strings.Join(lost, "\n  "))
	if confirmed != "" {
		if confirmed != name {
			return fmt.Errorf("--confirm: %q is not the name of the cluster, %q", confirmed, name)
		}
		return nil
	}
	return ask(u.Out, answers, "Type the name of the cluster, "+name, name)
}

// ask asks for a text, and fails if another one is typed.
func ask(out io.Writer, answers *bufio.Scanner, question, want string) error {
	fmt.Fprintf(out, "%s: ", question)
	if !answers.Scan() || strings.TrimSpace(answers.Text()) != want {
		return errors.New("not confirmed; nothing more was changed")
	}
	return nil
}

// clusterName returns the name of the cluster in the kubeconfig, or its address if there is none, as inside a pod.
func (f *clusterFlags) clusterName(c *clusterClient) (string, error) {
	raw, err := f.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "", fmt.Errorf("read kubeconfig: %w", err)
	}
	if current := raw.Contexts[cmp.Or(*f.Context, raw.CurrentContext)]; current != nil && current.Cluster != "" {
		return current.Cluster, nil
	}
	return c.config.Host, nil
}
