// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// Listing lists pods and workloads page by page, and keeps one page at a time.
type Listing struct {
	// Reader reads from the API server, without a cache.
	Reader client.Reader
	// Mapper has the kinds that are installed.
	Mapper meta.RESTMapper
	// Kinds are the kinds to list, in this order. A kind that is not installed has no objects.
	Kinds []workloadkind.Kind
	// Namespace limits the objects to a namespace; empty lists all.
	Namespace string
	// Pause waits between two pages of a kind, if it is set. busy is the time that the page took.
	Pause func(ctx context.Context, busy time.Duration) error
	// Progress is called after each page, if it is set.
	Progress func(resource string)
}

// pageSize is the number of objects of a page. An object has at most 1.5 MB.
const pageSize = 100

// maxRestarts limits how often the list of a kind starts again because its snapshot expired.
const maxRestarts = 100

// Kinds returns the kinds whose objects policies evaluate, with the kinds that AdmissionParameters adds. Pods come last, when their
// controllers are known. DaemonSets are the cluster's, and Kueue's Workloads are copies of others: their pods show what they violate.
func Kinds(added []v1alpha1.PodTemplates) []workloadkind.Kind {
	kinds := slices.DeleteFunc(workloadkind.All(), func(k workloadkind.Kind) bool {
		evaluated, _ := workloadkind.LookupEvaluated(k.GroupKind)
		return len(evaluated.Templates) == 0 || k.StopAction.Method == workloadkind.StopNever
	})
	for _, entry := range added {
		kinds = append(kinds, workloadkind.Kind{GroupKind: schema.ParseGroupKind(entry.Kind), Resource: entry.Resource})
	}
	pods, _ := workloadkind.Lookup(podKind)
	return append(kinds, pods)
}

// Each calls a function with each object, whose kind is set, until the function fails. It returns the resources that may not be
// listed. It fails if objects cannot be listed for another reason.
func (l *Listing) Each(ctx context.Context, visit func(context.Context, *unstructured.Unstructured) error) (missingRights []string, err error) {
	for _, kind := range l.Kinds {
		mapping, err := l.Mapper.RESTMapping(kind.GroupKind)
		if meta.IsNoMatchError(err) {
			continue // it is not installed
		}
		if err != nil {
			return nil, fmt.Errorf("find the resource of %s: %w", kind.GroupKind, err)
		}
		switch err := l.eachOf(ctx, mapping.GroupVersionKind, kind.Resource, visit); {
		case apierrors.IsForbidden(err):
			missingRights = append(missingRights, mapping.Resource.GroupResource().String())
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			// It was just uninstalled.
		case err != nil:
			return nil, fmt.Errorf("list %s: %w", mapping.Resource.GroupResource(), err)
		}
	}
	return missingRights, nil
}

// eachOf lists the objects of a kind. If the snapshot of its list expires, it goes on behind the last object: what was created
// there meanwhile is listed too.
func (l *Listing) eachOf(
	ctx context.Context, kind schema.GroupVersionKind, resource string, visit func(context.Context, *unstructured.Unstructured) error,
) error {
	var last, visited string // the last object, and that up to which all were visited before the list started again
	next, restarts := "", 0
	for {
		start := policytime.MachineNow()
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := l.Reader.List(ctx, page, client.InNamespace(l.Namespace), client.Limit(pageSize), client.Continue(next))
		if (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) && next != "" && restarts < maxRestarts {
			next, visited = continueAfter(err), last
			restarts++
			continue
		}
		if err != nil {
			return err
		}
		for i := range page.Items {
			object := &page.Items[i]
			key := object.GetNamespace() + "/" + object.GetName()
			if key <= visited {
				continue // lists are sorted by this key
			}
			last = key
			if object.GetKind() == "" {
				object.SetGroupVersionKind(kind)
			}
			if err := visit(ctx, object); err != nil {
				return err
			}
		}
		if l.Progress != nil {
			l.Progress(resource)
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
		if l.Pause != nil {
			if err := l.Pause(ctx, policytime.MachineNow().Sub(start)); err != nil {
				return err
			}
		}
	}
}

// continueAfter returns the token with which the API server goes on behind an expired snapshot; empty if it gives none, and the
// list starts again.
func continueAfter(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}
