// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
)

// Controllers reports which users are controllers; evaluation.TenantResolver implements it.
type Controllers interface {
	// IsControllerOf reports whether a user may set controller references to objects of the owner's kind.
	IsControllerOf(ctx context.Context, user string, owner *metav1.OwnerReference) (bool, error)
	// RecordsCreators reports whether admission records who creates the objects of a kind, and protects the record.
	RecordsCreators(ctx context.Context, kind schema.GroupKind) (bool, error)
}

// CreatorResolver resolves the creators of objects, from the objects in the API server: one read of metadata for each
// owner above a new pod with the label of a creator.
type CreatorResolver struct {
	// Live reads the metadata of pods and of their owners from the API server: a cache may have an older object of the name.
	Live client.Reader
	// Controllers are the users whose objects belong to their owner.
	Controllers Controllers
}

// maxOwners is the largest number of owners above a pod: a CronJob's has two, a RayJob's three.
const maxOwners = 8

// errUnknownCreator means that no object names a creator.
var errUnknownCreator = errors.New("its creator is not known")

// Of returns the user who created the object, or its root workload if controllers created the object.
//
// A reference to an owner counts only on an object that a controller created. Its users cannot change such an object:
// admission lets them change only what they created, and accepts controller references from controllers alone.
func (r *CreatorResolver) Of(ctx context.Context, object *metav1.PartialObjectMetadata) (string, error) {
	creator, _, err := r.rootOf(ctx, object)
	return creator, err
}

// rootOf returns the creator of an object, and the root workload that this user created.
func (r *CreatorResolver) rootOf(
	ctx context.Context, object *metav1.PartialObjectMetadata,
) (creator string, root *metav1.PartialObjectMetadata, err error) {
	for range maxOwners {
		kind := object.GroupVersionKind().GroupKind()
		switch recorded, err := r.Controllers.RecordsCreators(ctx, kind); {
		case err != nil:
			return "", nil, fmt.Errorf("find out whether creators of kind %s are recorded: %w", kind, err)
		case !recorded:
			return "", nil, fmt.Errorf("%w: admission does not record who creates a %s", errUnknownCreator, kind)
		}
		creator = object.Annotations[v1alpha1.AnnotationCreatedBy]
		if creator == "" {
			return "", nil, errUnknownCreator
		}
		reference := metav1.GetControllerOfNoCopy(object)
		if reference == nil {
			return creator, object, nil
		}
		isController, err := r.Controllers.IsControllerOf(ctx, creator, reference)
		if err != nil {
			return "", nil, fmt.Errorf("compare %s with the controllers: %w", creator, err)
		}
		if !isController {
			return creator, object, nil
		}
		owner, err := r.owner(ctx, object.Namespace, reference)
		if err != nil {
			return "", nil, err
		}
		if isAdopted(object, reference, owner) {
			return "", nil, fmt.Errorf("%w: its owner, %s %s, took it over from another workload", errUnknownCreator, reference.Kind, reference.Name)
		}
		object = owner
	}
	return "", nil, fmt.Errorf("%w: it has more than %d owners", errUnknownCreator, maxOwners)
}

// maxClockSkew is by how much the clocks of API servers may differ.
const maxClockSkew = 10 * time.Second

// isAdopted reports whether an owner did not create the object, but took it over by its labels, after another controller
// had released it. What has the label of a creator says for whom it was created, and callers compare that.
func isAdopted(object *metav1.PartialObjectMetadata, reference *metav1.OwnerReference, owner *metav1.PartialObjectMetadata) bool {
	if _, labeled := object.Labels[v1alpha1.LabelCreator]; labeled {
		return false
	}
	if owner.CreationTimestamp.After(object.CreationTimestamp.Add(maxClockSkew)) {
		return true
	}
	// Kubernetes' controllers adopt, and name what they create after themselves.
	switch schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind).GroupKind() {
	case schema.GroupKind{Kind: "ReplicationController"}, schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}:
		return object.GenerateName != "" && strings.TrimSuffix(object.GenerateName, "-") != owner.Name
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "Deployment"}:
		hash := object.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		return hash != "" && object.Name != owner.Name+"-"+hash
	case schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}:
		uid := object.Labels[batchv1.ControllerUidLabel]
		return uid != "" && uid != string(owner.UID)
	}
	return false
}

// labelOf returns the label of a new pod's creator, and who that is: the user of the request, or the creator of the pod's owner if a
// controller creates the pod. Where no object names a creator, it is empty, and the pods of the owner have a label of their own.
func (r *CreatorResolver) labelOf(
	ctx context.Context, req *admission.Request, pod *metav1.PartialObjectMetadata,
) (label, creator string, err error) {
	creator = req.UserInfo.Username
	if reference := metav1.GetControllerOfNoCopy(pod); reference != nil {
		isController, err := r.Controllers.IsControllerOf(ctx, creator, reference)
		if err != nil {
			return "", "", err
		}
		if isController {
			creator, err = r.OfOwner(ctx, req.Namespace, reference)
			if errors.Is(err, errUnknownCreator) {
				return v1alpha1.CreatorLabel(string(reference.UID)), "", nil
			}
			if err != nil {
				return "", "", err
			}
		}
	}
	return v1alpha1.CreatorLabel(creator), creator, nil
}

// OfOwner returns the creator of the object to which a controller reference points.
func (r *CreatorResolver) OfOwner(ctx context.Context, namespace string, reference *metav1.OwnerReference) (string, error) {
	owner, err := r.owner(ctx, namespace, reference)
	if err != nil {
		return "", err
	}
	return r.Of(ctx, owner)
}

// owner returns the metadata of an owner. It is an error if another object has its name now.
func (r *CreatorResolver) owner(ctx context.Context, namespace string, reference *metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	owner, err := r.get(ctx, schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind), namespace, reference.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: its owner, %s %s, was deleted", errUnknownCreator, reference.Kind, reference.Name)
	case apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return nil, fmt.Errorf("%w: the webhook may not read its owner, %s %s: %w", errUnknownCreator, reference.Kind, reference.Name, err)
	case err != nil:
		return nil, fmt.Errorf("get its owner, %s %s: %w", reference.Kind, reference.Name, err)
	}
	if owner.UID != reference.UID {
		return nil, fmt.Errorf("%w: its owner, %s %s, was deleted, and another has that name", errUnknownCreator, reference.Kind, reference.Name)
	}
	return owner, nil
}

// get returns the metadata of an object.
func (r *CreatorResolver) get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object); err != nil {
		return nil, err
	}
	return object, nil
}
