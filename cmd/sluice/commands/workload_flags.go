// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"

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
