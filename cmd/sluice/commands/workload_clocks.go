// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

func clocksCommand() *cobra.Command {
	var options ClusterOptions
	var all bool
	var project, output string
	cmd := &cobra.Command{
		Use:   "clocks",
		Short: "Show how long workloads have run, are idle, and may run on",
		Long: `clocks shows each workload's time as of now, what ends soonest first. It needs no
right beyond reading the clocks of one namespace.`,
		Example: `  sluice clocks -n thesis-mueller
  sluice clocks --project thesis-mueller
  sluice clocks -A -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := validateScopeFlags(all, options.Namespace, project); err != nil {
				return err
			}
			c, err := connectCluster(cmd, options)
			if err != nil {
				return err
			}
			namespace := c.Namespace
			if all {
				namespace = ""
			}
			found, err := ListClocks(cmd.Context(), c, namespace, project)
			if err != nil {
				return err
			}
			now := c.Clock.Now()
			rows := NewClockRows(found.Clocks, found.Projects, now)
			if output == "json" {
				return printer.WriteJSON(cmd.OutOrStdout(), ClockDocument{Now: now, Clocks: rows})
			}
			if len(rows) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), NoClocksMessage(found.Namespace))
				return nil
			}
			return WriteClockTable(cmd.OutOrStdout(), rows, all, time.Local)
		},
	}
	addClusterFlags(cmd, &options)
	addNamespaceFlag(cmd, &options)
	addAllNamespacesFlag(cmd, &all)
	cmd.Flags().StringVar(&project, "project", "", "the `project` whose workloads are meant")
	addOutputFlag(cmd, &output, "table", "json")
	return cmd
}

// addAllNamespacesFlag is for all namespaces, as kubectl has it.
func addAllNamespacesFlag(cmd *cobra.Command, all *bool) {
	cmd.Flags().BoolVarP(all, "all-namespaces", "A", false, "in all namespaces")
}

// validateScopeFlags refuses what contradicts itself.
func validateScopeFlags(all bool, namespace, project string) error {
	given := 0
	for _, is := range []bool{all, namespace != "", project != ""} {
		if is {
			given++
		}
	}
	if given > 1 {
		return errors.New("want one of -n, -A and --project: each says where to look")
	}
	return nil
}

// clockPageSize is how many objects are asked for at once.
const clockPageSize = 500

// ClockList is what was found.
type ClockList struct {
	// Namespace is where was looked; empty for everywhere.
	Namespace string
	// Clocks are the workloads' clocks.
	Clocks []v1alpha1.WorkloadClock
	// Projects are the names of projects by their namespaces, as far as the reader
	// may know them.
	Projects map[string]string
}

// ListClocks reads the clocks of a namespace, or of all where it is empty. A project
// that is named has them read in its own namespace, which a member may do.
func ListClocks(ctx context.Context, c client.Reader, namespace, project string) (ClockList, error) {
	found := ClockList{Namespace: namespace}
	if project != "" {
		var named v1alpha1.Project
		if err := c.Get(ctx, types.NamespacedName{Name: project}, &named); err != nil {
			return found, fmt.Errorf("reading project %s: %w", project, err)
		}
		found.Namespace = named.NamespaceName()
		found.Projects = map[string]string{found.Namespace: project}
	}
	list := v1alpha1.WorkloadClockList{}
	for {
		err := c.List(ctx, &list, client.InNamespace(found.Namespace), client.Limit(clockPageSize), client.Continue(list.Continue))
		if err != nil {
			return found, fmt.Errorf("reading workload clocks: %w%s", err, narrowerScopeHint(err, found.Namespace))
		}
		found.Clocks = append(found.Clocks, list.Items...)
		if list.Continue == "" {
			break
		}
	}
	if found.Projects != nil {
		return found, nil
	}
	var err error
	found.Projects, err = listNamespaceProjects(ctx, c, found.Namespace)
	return found, err
}

// narrowerScopeHint says how to ask for less, where everything was more than allowed.
func narrowerScopeHint(err error, namespace string) string {
	if apierrors.IsForbidden(err) && namespace == "" {
		return "; name a namespace with -n, or a project of yours with --project"
	}
	return ""
}

// listNamespaceProjects reads whose namespaces are. Who may not read them sees none.
func listNamespaceProjects(ctx context.Context, c client.Reader, namespace string) (map[string]string, error) {
	names := map[string]string{}
	kind := corev1.SchemeGroupVersion.WithKind("Namespace")
	if namespace != "" {
		one := &metav1.PartialObjectMetadata{}
		one.SetGroupVersionKind(kind)
		err := c.Get(ctx, types.NamespacedName{Name: namespace}, one)
		if err == nil {
			names[namespace] = one.Labels[v1alpha1.LabelProject]
		} else if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading namespace %s: %w", namespace, err)
		}
		return names, nil
	}
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(kind.GroupVersion().WithKind("NamespaceList"))
	if err := c.List(ctx, all, client.HasLabels{v1alpha1.LabelProject}); err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("reading the projects of namespaces: %w", err)
	}
	for i := range all.Items {
		names[all.Items[i].Name] = all.Items[i].Labels[v1alpha1.LabelProject]
	}
	return names, nil
}
