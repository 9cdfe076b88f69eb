// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

func newClocksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clocks",
		Short: "List the clocks of workloads: running time, idle time and time left",
		Long: `List the clocks of workloads: how long each has run, how long its GPUs have been idle,
and when Sluice stops it. The workload that ends first comes first. You only need to
read the WorkloadClocks of one namespace.`,
		Example: `  # List the clocks of a namespace
  sluice clocks -n thesis-mueller

  # List the clocks of a project
  sluice clocks --project thesis-mueller

  # List all clocks as JSON
  sluice clocks -A -o json`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, listScope)
	output := addListOutputFlag(cmd)
	project := cmd.Flags().StringP("project", "p", "", "List the workloads of this project")
	completeFlag(cmd, "project", cluster.completeProjects)
	cmd.MarkFlagsMutuallyExclusive("all-namespaces", "namespace", "project")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		list, err := listClocks(cmd.Context(), c, c.namespace, *project)
		if err != nil {
			return err
		}
		now := c.clock.Now()
		rows := newClockRows(list.clocks, list.projects, now)
		return output.printList(cmd, clockDocument{Now: now, Clocks: rows}, clockTable(rows, cluster.allNamespaces, time.Local),
			"workload clocks"+inNamespace(list.namespace))
	}
	return cmd
}

// inNamespace returns " in namespace x", or an empty string for all namespaces.
func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// clockList has the clocks of a namespace, or of all namespaces.
type clockList struct {
	namespace string
	clocks    []v1alpha1.WorkloadClock
	// projects has the names of projects by namespace, as far as the user may read
	// them.
	projects map[string]string
}

// listClocks lists the clocks of a namespace; of all namespaces if it is empty; or
// of a project's namespace, which a member of the project may do.
func listClocks(ctx context.Context, c client.Reader, namespace, project string) (clockList, error) {
	list := clockList{namespace: namespace}
	if project != "" {
		var err error
		if list.namespace, err = projectNamespace(ctx, c, project); err != nil {
			return list, err
		}
		list.projects = map[string]string{list.namespace: project}
	}
	err := listPages(ctx, c, func(page *v1alpha1.WorkloadClockList) { list.clocks = append(list.clocks, page.Items...) },
		client.InNamespace(list.namespace))
	if err != nil {
		hint := ""
		if list.namespace == "" {
			hint = "name a namespace with -n, or one of your projects with --project"
		}
		return list, fmt.Errorf("list clocks: %w", explainForbidden(err, hint))
	}
	if list.projects == nil {
		list.projects, err = listNamespaceProjects(ctx, c, list.namespace)
	}
	return list, err
}

// listNamespaceProjects returns the project of a namespace, or of all namespaces.
// It returns none that the user may not read.
func listNamespaceProjects(ctx context.Context, c client.Reader, namespace string) (map[string]string, error) {
	projects := map[string]string{}
	kind := corev1.SchemeGroupVersion.WithKind("Namespace")
	if namespace != "" {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(kind)
		err := c.Get(ctx, types.NamespacedName{Name: namespace}, object)
		if err == nil {
			projects[namespace] = object.Labels[v1alpha1.LabelProject]
		} else if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("get namespace %s: %w", namespace, err)
		}
		return projects, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind("NamespaceList"))
	if err := c.List(ctx, list, client.HasLabels{v1alpha1.LabelProject}); err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	for i := range list.Items {
		projects[list.Items[i].Name] = list.Items[i].Labels[v1alpha1.LabelProject]
	}
	return projects, nil
}
