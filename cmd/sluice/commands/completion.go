// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/submission"
	"sluice.dev/cmd/sluice/workloads"
)

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
	return f.completeInNamespace(func(ctx context.Context, c *clusterClient) ([]string, error) {
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

// completeInNamespace is completeNames in the selected namespace, or in that of the selected project.
func (f *workloadFlags) completeInNamespace(read func(context.Context, *clusterClient) ([]string, error)) cobra.CompletionFunc {
	return f.completeNames(func(ctx context.Context, c *clusterClient) ([]string, error) {
		if err := f.selectNamespace(ctx, c); err != nil {
			return nil, err
		}
		return read(ctx, c)
	})
}

// completeSubmissionFlags completes the values of the flags of a submission.
func (f *workloadFlags) completeSubmissionFlags(cmd *cobra.Command) {
	completeFlag(cmd, "node-pools", f.completePools)
	completeFlag(cmd, "preset", f.completePresets)
	completeFlag(cmd, "pvc", f.completeClaims)
	completeFlag(cmd, "mig-profile", f.completeMIGProfiles)
	completeFlag(cmd, "service-type", cobra.FixedCompletions(submission.ServiceTypes, cobra.ShellCompDirectiveNoFileComp))
}

// completePresets completes the names of presets.
func (f *workloadFlags) completePresets(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.completeInNamespace(func(ctx context.Context, c *clusterClient) ([]string, error) {
		presets, err := listPresets(ctx, c, c.namespace)
		if err != nil {
			return nil, err
		}
		return presets.Names(), nil
	})(cmd, args, prefix)
}

// completeClaims completes the names of volume claims in NAME:/path, up to the colon.
func (f *workloadFlags) completeClaims(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	names, directive := f.completeInNamespace(func(ctx context.Context, c *clusterClient) ([]string, error) {
		claims := &metav1.PartialObjectMetadataList{}
		claims.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
		err := c.List(ctx, claims, client.InNamespace(c.namespace))
		var names []string
		for i := range claims.Items {
			names = append(names, claims.Items[i].Name+":")
		}
		return names, err
	})(cmd, args, prefix)
	return names, directive | cobra.ShellCompDirectiveNoSpace
}

// completeMIGProfiles completes the MIG profiles that the GPUs of the visible node pools offer.
func (f *workloadFlags) completeMIGProfiles(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.completeNames(func(ctx context.Context, c *clusterClient) ([]string, error) {
		pools, err := listVisibleNames(ctx, c, "NodePool", func(access *ownAccess) []string { return access.nodePools })
		if err != nil {
			return nil, err
		}
		var profiles []string
		for _, name := range pools {
			var pool v1alpha1.NodePool
			if err := c.Get(ctx, types.NamespacedName{Name: name}, &pool); err != nil {
				continue // what the others offer helps, too
			}
			profiles = append(profiles, migProfiles(&pool)...)
		}
		return profiles, nil
	})(cmd, args, prefix)
}

// completePods completes the names of the pods of the workload that the first argument names.
func (f *podFlags) completePods(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.completeInWorkload(args, func(w *workloads.Workload) []string {
		var names []string
		for _, pod := range w.Pods {
			names = append(names, pod.Name)
		}
		return names
	})(cmd, args, prefix)
}

// completeContainers completes the names of the containers of the pod that --pod names, or of the one that the command would choose.
func (f *podFlags) completeContainers(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.completeInWorkload(args, func(w *workloads.Workload) []string {
		pod, err := selectPod(w, f.pod, false)
		if err != nil {
			return nil
		}
		return containerNames(pod)
	})(cmd, args, prefix)
}

// completeInWorkload completes names in the workload that the first argument names.
func (f *podFlags) completeInWorkload(args []string, read func(*workloads.Workload) []string) cobra.CompletionFunc {
	return f.completeInNamespace(func(ctx context.Context, c *clusterClient) ([]string, error) {
		if len(args) == 0 {
			return nil, nil
		}
		reader, err := newWorkloadReader(c)
		if err != nil {
			return nil, err
		}
		w, err := reader.Find(ctx, c.namespace, args[0])
		if err != nil {
			return nil, err
		}
		return read(w), nil
	})
}
