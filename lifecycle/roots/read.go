// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package roots

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/lifecycle/gpupods"
)

// look reads an owner.
func (f *Finder) look(ctx context.Context, namespace string, owner gpupods.Owner) (step, error) {
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	if kind.Version == "" || kind.Kind == "" || owner.Name == "" {
		return step{ending: EndedBelowUnknown}, nil // no server has such a kind
	}
	if neverRoot(kind.GroupKind()) {
		return step{ending: EndedBelowNone}, nil
	}
	object, ending, err := f.get(ctx, kind, client.ObjectKey{Namespace: namespace, Name: owner.Name})
	switch {
	case err != nil || ending != "":
		return step{ending: ending}, err
	case object.UID != owner.UID:
		return step{ending: EndedBelowOther}, nil
	}
	found := step{kind: object.GroupVersionKind()}
	if above := metav1.GetControllerOfNoCopy(object); above != nil {
		found.controller = gpupods.Owner{APIVersion: above.APIVersion, Kind: above.Kind, Name: above.Name, UID: above.UID}
	}
	return found, nil
}

// get reads the metadata of one object, or says why there is none to be had.
//
// The object's kind is in a version that is served.
func (f *Finder) get(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) (*metav1.PartialObjectMetadata, Ending, error) {
	mapping, err := f.mapping(kind)
	switch {
	case meta.IsNoMatchError(err):
		return nil, EndedBelowUnknown, nil
	case err != nil:
		return nil, "", fmt.Errorf("asking what %s is: %w", kind, err)
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		return nil, EndedBelowCluster, nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	err = f.reader.Get(ctx, key, object)
	switch {
	case err == nil:
		object.SetGroupVersionKind(mapping.GroupVersionKind)
		return object, "", nil
	case meta.IsNoMatchError(err):
		return nil, EndedBelowUnknown, nil
	case apierrors.IsNotFound(err):
		return nil, EndedBelowGone, nil
	case apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return nil, EndedBelowForbidden, nil
	default:
		return nil, "", fmt.Errorf("reading %s %s: %w", kind.Kind, key, err)
	}
}

// mapping is how the server serves a kind: in the version of the reference, or in
// another where that is not served any more.
func (f *Finder) mapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, err := f.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return f.mapper.RESTMapping(kind.GroupKind())
	}
	return mapping, err
}

// group is the root of a pod without a controller: the Workload of its group where
// Kueue says so, else the pod itself. A pod may become one of a group only later,
// so that it is none is not remembered.
func (f *Finder) group(ctx context.Context, pod *gpupods.Pod, itself Root) (Root, Ending, error) {
	if pod.Group == "" {
		return itself, EndedAtTop, nil
	}
	if known, ok := f.groups.Get(pod.UID); ok {
		return known.(Root), EndedAtGroup, nil
	}
	kind := groupKind.WithVersion("")
	object, ending, err := f.get(ctx, kind, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Group})
	if err != nil {
		return Root{}, "", fmt.Errorf("finding the group of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if ending != "" || !owns(object, pod) {
		return itself, EndedAtTop, nil
	}
	root := Root{GroupVersionKind: object.GroupVersionKind(), Namespace: pod.Namespace, Name: pod.Group, UID: object.UID}
	f.groups.Add(pod.UID, root, askAgainAfter) // Kueue makes a Workload anew that does not fit its pods
	return root, EndedAtGroup, nil
}

// owns is whether the pod is among the owners of a group's Workload: Kueue makes
// each pod one that it takes into the group.
func owns(workload *metav1.PartialObjectMetadata, pod *gpupods.Pod) bool {
	for i := range workload.OwnerReferences {
		if owner := &workload.OwnerReferences[i]; owner.UID == pod.UID && owner.Kind == podKind.Kind {
			return true
		}
	}
	return false
}
