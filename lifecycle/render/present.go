// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// QueueKindsSeen is what is known of the queue kinds, whose CRDs may not be there.
type QueueKindsSeen interface {
	// Watched tells whether the API server serves the kind, and what lifecycle
	// rendered of it is known.
	Watched(kind schema.GroupVersionKind) bool
	// Absent tells whether the API server said lately that it does not serve the kind.
	Absent(kind schema.GroupVersionKind) bool
	// Of are the objects of the kind that bear the subject's label. They are not to
	// be changed.
	Of(kind schema.GroupVersionKind, subject SubjectKind, name string) []*metav1.PartialObjectMetadata
}

// present has what was rendered for the place, as far as caches know.
func (a *Applier) present(ctx context.Context, place Place) (map[key]client.Object, error) {
	present := map[key]client.Object{}
	for at, k := range kinds {
		if k.isQueue() {
			for _, object := range a.Queues.Of(k.GroupVersionKind, place.Kind, place.Name) {
				if object.Namespace == place.Namespace || !k.namespaced {
					present[key{at, object.Name}] = object
				}
			}
			continue
		}
		if place.Namespace == "" {
			continue
		}
		objects := k.list()
		if err := a.Client.List(ctx, objects, client.InNamespace(place.Namespace), client.MatchingLabels(place.labels())); err != nil {
			return nil, fmt.Errorf("listing each %s that was rendered in namespace %s: %w", k.Kind, place.Namespace, err)
		}
		err := meta.EachListItem(objects, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok {
				present[key{at, object.GetName()}] = object
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing each %s: %w", k.Kind, err)
		}
	}
	return present, nil
}
