// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/workloads"
)

// workloadFlags are the flags of a command for the workloads of a namespace or a project.
type workloadFlags struct {
	*clusterFlags
	project string
}

// addWorkloadFlags adds the flags of a cluster, and -p for a project.
func addWorkloadFlags(cmd *cobra.Command, s scope) *workloadFlags {
	f := &workloadFlags{clusterFlags: addClusterFlags(cmd, s)}
	cmd.Flags().StringVarP(&f.project, "project", "p", "", "Project of the workloads, instead of a namespace")
	exclusive := []string{"namespace", "project"}
	if s == listScope {
		exclusive = append(exclusive, "all-namespaces")
	}
	cmd.MarkFlagsMutuallyExclusive(exclusive...)
	completeFlag(cmd, "project", f.completeProjects)
	return f
}

// workloadClient reads the workloads of one namespace, or of all if it is empty.
type workloadClient struct {
	*clusterClient
	reader workloads.Reader
	// projects has the project of the namespace if the user named it.
	projects map[string]string
}

// connectWorkloads returns a client for the workloads of the selected namespace or project.
func (f *workloadFlags) connectWorkloads(cmd *cobra.Command) (*workloadClient, error) {
	c, err := f.connect(cmd)
	if err != nil {
		return nil, err
	}
	w := &workloadClient{clusterClient: c}
	if err := f.selectNamespace(cmd.Context(), c); err != nil {
		return nil, err
	}
	if f.project != "" {
		w.projects = map[string]string{c.namespace: f.project}
	}
	w.reader, err = newWorkloadReader(c)
	return w, err
}

// selectNamespace sets the namespace of the client to that of the selected project, if there is one.
func (f *workloadFlags) selectNamespace(ctx context.Context, c *clusterClient) error {
	if f.project == "" {
		return nil
	}
	namespace, err := projectNamespace(ctx, c, f.project)
	if err == nil {
		c.namespace = namespace
	}
	return err
}

// newWorkloadReader returns a reader that learns the cluster's kinds from two requests, and not from the cache
// of kubectl: it would miss a kind that was installed in the last hours.
func newWorkloadReader(c *clusterClient) (workloads.Reader, error) {
	klog.SetLogger(logr.Discard()) // client-go logs the errors that it returns
	config := rest.CopyConfig(c.config)
	config.WarningHandler = rest.NoWarnings{} // of kinds that are deprecated
	discovered, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return workloads.Reader{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	cached := memory.NewMemCacheClient(discovered)
	groups, err := restmapper.GetAPIGroupResources(cached)
	if err != nil {
		return workloads.Reader{}, fmt.Errorf("discover the kinds of %s: %w", config.Host, err)
	}
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), cached, nil)
	reader, err := client.New(config, client.Options{Scheme: c.Scheme(), Mapper: mapper})
	if err != nil {
		return workloads.Reader{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return workloads.Reader{Client: reader}, nil
}

// projectNamespace returns the namespace of a project. Its members may get the Project by name.
func projectNamespace(ctx context.Context, c client.Reader, name string) (string, error) {
	var project v1alpha1.Project
	if err := c.Get(ctx, types.NamespacedName{Name: name}, &project); err != nil {
		return "", fmt.Errorf("get project %s: %w", name,
			explainForbidden(err, "its owners and members may read it; `sluice whoami` shows your projects"))
	}
	return project.NamespaceName(), nil
}

// completionTimeout limits the requests of a completion: a shell waits for it.
const completionTimeout = 2 * time.Second

// completeFlag registers the completion of a flag that was just added.
func completeFlag(cmd *cobra.Command, name string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // the flag was just added
	}
}

// completeNames returns a completion that reads names from the cluster. It is quiet on errors, and no slower
// than completionTimeout.
func (f *clusterFlags) completeNames(read func(context.Context, *clusterClient) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(contextOf(cmd)), completionTimeout)
		defer cancel()
		// The discovery of kinds knows no context.
		if cmd.Flags().Set("request-timeout", completionTimeout.String()) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := f.connect(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, err := read(ctx, c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names = slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasPrefix(name, prefix) || slices.Contains(args, name)
		})
		slices.Sort(names)
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}

func contextOf(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

// completeProjects completes the names of the projects that the user may list or get.
func (f *clusterFlags) completeProjects(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.completeNames(func(ctx context.Context, c *clusterClient) ([]string, error) {
		return listVisibleNames(ctx, c, projectKind, func(access *ownAccess) []string { return access.projects })
	})(cmd, args, prefix)
}

// completePools completes the names of the node pools that the user may list or get.
func (f *clusterFlags) completePools(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.completeNames(func(ctx context.Context, c *clusterClient) ([]string, error) {
		return listVisibleNames(ctx, c, "NodePool", func(access *ownAccess) []string { return access.nodePools })
	})(cmd, args, prefix)
}

// completeWorkload completes the name of a workload as the only argument: KIND/NAME where two have one name.
func (f *workloadFlags) completeWorkload(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.completeWorkloads(cmd, args, prefix)
}

// completeWorkloads completes the names of several workloads.
func (f *workloadFlags) completeWorkloads(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.completeNames(func(ctx context.Context, c *clusterClient) ([]string, error) {
		if err := f.selectNamespace(ctx, c); err != nil {
			return nil, err
		}
		reader, err := newWorkloadReader(c)
		if err != nil {
			return nil, err
		}
		list, err := reader.List(ctx, c.namespace)
		if err != nil {
			return nil, err
		}
		return workloadNames(list, prefix), nil
	})(cmd, args, prefix)
}

// workloadNames returns the names by which each workload is found: KIND/NAME if the user types a kind, or if two
// have one name.
func workloadNames(list []*workloads.Workload, prefix string) []string {
	count := map[string]int{}
	for _, w := range list {
		count[w.Object.GetName()]++
	}
	var names []string
	for _, w := range list {
		name := w.Object.GetName()
		if strings.Contains(prefix, "/") || count[name] > 1 {
			name = strings.ToLower(w.Object.GetKind()) + "/" + name
		}
		names = append(names, name)
	}
	return names
}
