// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/podcache"
)

// readOwner reads an owner from the API server.
func (r *Resolver) readOwner(ctx context.Context, namespace string, owner podcache.Owner) (resolvedOwner, error) {
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	if !isWellFormed(kind) || owner.Name == "" || len(content.IsPathSegmentName(owner.Name)) > 0 {
		return resolvedOwner{outcome: OutcomeOwnerKindUnknown}, nil
	}
	if !mayBeRoot(kind.GroupKind()) {
		return resolvedOwner{outcome: OutcomeOwnerNotWorkload}, nil
	}
	object, outcome, err := r.getMetadata(ctx, kind, client.ObjectKey{Namespace: namespace, Name: owner.Name})
	switch {
	case err != nil || outcome != "":
		return resolvedOwner{outcome: outcome}, err
	case object.UID != owner.UID || object.Name != owner.Name:
		return resolvedOwner{outcome: OutcomeOwnerReplaced}, nil
	}
	resolved := resolvedOwner{kind: object.GroupVersionKind()}
	if resolved.canStop, err = r.hasStopAction(ctx, resolved.kind); err != nil {
		return resolvedOwner{}, err
	}
	resolved.controller = controllerOf(object)
	return resolved, nil
}

// controllerOf returns the controller of an object; zero if it has none.
func controllerOf(object metav1.Object) podcache.Owner {
	if c := metav1.GetControllerOfNoCopy(object); c != nil {
		return podcache.Owner{APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name, UID: c.UID}
	}
	return podcache.Owner{}
}

// isWellFormed reports whether a kind can be part of an API path.
func isWellFormed(kind schema.GroupVersionKind) bool {
	return kind.Kind != "" && len(validation.IsDNS1035Label(kind.Version)) == 0 &&
		(kind.Group == "" || len(validation.IsDNS1123Subdomain(kind.Group)) == 0)
}

// hasStopAction reports whether objects of a kind can be stopped, and so can be roots. A
// DaemonSet can be one, too: it is never stopped, because it belongs to the cluster.
func (r *Resolver) hasStopAction(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	if _, known := workloadkind.Lookup(kind.GroupKind()); known {
		return true, nil
	}
	mapping, err := r.restMapping(kind)
	if err != nil {
		return false, fmt.Errorf("look up resource of %s: %w", kind, err)
	}
	return r.canStop(ctx, mapping)
}

// getMetadata returns the metadata of an object, with its kind in a served version, or the
// outcome if it cannot be read.
func (r *Resolver) getMetadata(
	ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey,
) (*metav1.PartialObjectMetadata, Outcome, error) {
	mapping, err := r.restMapping(kind)
	switch {
	case meta.IsNoMatchError(err):
		return nil, OutcomeOwnerKindUnknown, nil
	case err != nil:
		return nil, "", fmt.Errorf("look up resource of %s: %w", kind, err)
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		return nil, OutcomeOwnerClusterScoped, nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	err = r.reader.Get(ctx, key, object)
	switch {
	case err == nil:
		object.SetGroupVersionKind(mapping.GroupVersionKind)
		return object, "", nil
	case meta.IsNoMatchError(err):
		return nil, OutcomeOwnerKindUnknown, nil
	case apierrors.IsNotFound(err):
		return nil, OutcomeOwnerNotFound, nil
	case apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return nil, OutcomeOwnerForbidden, nil
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err), apierrors.IsNotAcceptable(err):
		return nil, OutcomeOwnerUnreadable, nil
	default:
		return nil, "", fmt.Errorf("get %s %s: %w", kind.Kind, key, err)
	}
}

// restMapping returns the resource of a kind, in the version of the reference or, if that is
// not served any more, in another one.
func (r *Resolver) restMapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return r.mapper.RESTMapping(kind.GroupKind())
	}
	return mapping, err
}
