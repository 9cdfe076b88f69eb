// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// page is how many objects are asked for at once.
const page = 500

// Listed is what was found.
type Listed struct {
	// Namespace is where was looked; empty for everywhere.
	Namespace string
	// Clocks are the workloads' clocks.
	Clocks []v1alpha1.WorkloadClock
	// Projects are the names of projects by their namespaces, as far as the reader
	// may know them.
	Projects map[string]string
}

// List reads the clocks of a namespace, or of all where it is empty. A project
// that is named has them read in its own namespace, which a member may do.
func List(ctx context.Context, c client.Reader, namespace, project string) (Listed, error) {
	found := Listed{Namespace: namespace}
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
		err := c.List(ctx, &list, client.InNamespace(found.Namespace), client.Limit(page), client.Continue(list.Continue))
		if err != nil {
			return found, fmt.Errorf("reading workload clocks: %w%s", err, instead(err, found.Namespace))
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
	found.Projects, err = projectsOf(ctx, c, found.Namespace)
	return found, err
}

// instead says how to ask for less, where everything was more than allowed.
func instead(err error, namespace string) string {
	if apierrors.IsForbidden(err) && namespace == "" {
		return "; name a namespace with -n, or a project of yours with --project"
	}
	return ""
}

// projectsOf reads whose namespaces are. Who may not read them sees none.
func projectsOf(ctx context.Context, c client.Reader, namespace string) (map[string]string, error) {
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
