// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// patchStop stops and annotates an object in one patch. It writes nothing if the object is
// already stopped and annotated.
func (s *Stopper) patchStop(ctx context.Context, r root, until string) error {
	kind, object := r.kind, r.object
	annotation, annotated := object.GetAnnotations()[v1alpha1.AnnotationStoppedUntil]
	requestsPods := kind.RequestsPods(object)
	if annotated && annotation == until && !requestsPods {
		return nil
	}
	annotations := kind.StopAnnotations(object)
	annotations[v1alpha1.AnnotationStoppedUntil] = until
	err := s.applyPatch(ctx, object, r.mergePatch(r.stopPatch(), annotations))
	if (apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err)) && requestsPods {
		// The author can fill the annotations until Sluice's does not fit. The stop matters
		// more: a restart is then stopped again instead of refused.
		retryErr := s.applyPatch(ctx, object, r.mergePatch(r.stopPatch(), nil))
		if retryErr == nil {
			ctrl.LoggerFrom(ctx).Info("Stopped workload without annotation", "kind", object.GetKind(),
				"namespace", object.GetNamespace(), "name", object.GetName(), "reason", err.Error())
			return nil
		}
		err = errors.Join(err, retryErr)
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && kind.IsFinished(object) {
		return nil // some operators refuse changes to finished objects
	}
	return err
}

// removeStopAnnotation removes the annotation stopped-until. The annotation with the number
// of replicas stays for the owner.
func (s *Stopper) removeStopAnnotation(ctx context.Context, r root) error {
	if _, annotated := r.object.GetAnnotations()[v1alpha1.AnnotationStoppedUntil]; !annotated {
		return nil
	}
	return s.applyPatch(ctx, r.object, r.mergePatch(map[string]any{}, map[string]any{v1alpha1.AnnotationStoppedUntil: nil}))
}

func (r root) stopPatch() map[string]any { return r.kind.StopPatch(r.object, policytime.MachineNow()) }

// mergePatch adds annotations to a JSON merge patch. The patch applies only to the object with this UID and,
// unless anyVersion is set, this resource version.
func (r root) mergePatch(body, annotations map[string]any) map[string]any {
	workloadkind.SetPatchValue(body, string(r.object.GetUID()), "metadata", "uid")
	if !r.anyVersion {
		workloadkind.SetPatchValue(body, r.object.GetResourceVersion(), "metadata", "resourceVersion")
	}
	for key, value := range annotations {
		workloadkind.SetPatchValue(body, value, "metadata", "annotations", key)
	}
	return body
}

func (s *Stopper) applyPatch(ctx context.Context, object *unstructured.Unstructured, body map[string]any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	patched := &unstructured.Unstructured{}
	patched.SetGroupVersionKind(object.GroupVersionKind())
	patched.SetNamespace(object.GetNamespace())
	patched.SetName(object.GetName())
	return s.Client.Patch(ctx, patched, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
}

// kueueWorkloadKind is Kueue's object for a queued workload.
var kueueWorkloadKind = schema.GroupKind{Group: workloadkind.GroupKueue, Kind: "Workload"}

// deactivateQueued deactivates the root's Kueue Workloads before the root is suspended,
// because Kueue would resume a root that is only suspended. Any user can label a Workload
// with the root's UID, so the root is suspended in any case.
func (s *Stopper) deactivateQueued(ctx context.Context, r root, until time.Time) error {
	return s.forEachQueued(ctx, r, func(workload root) error {
		return s.patchStop(ctx, workload, workloadkind.FormatStoppedUntil(until))
	})
}

func (s *Stopper) releaseQueued(ctx context.Context, r root) error {
	return s.forEachQueued(ctx, r, func(workload root) error {
		return s.removeStopAnnotation(ctx, workload)
	})
}

// forEachQueued calls do with each Kueue Workload of the root. It does nothing if the kind
// has none, or the cluster has no Kueue.
func (s *Stopper) forEachQueued(ctx context.Context, r root, do func(workload root) error) error {
	kind, known := workloadkind.Lookup(kueueWorkloadKind)
	if !r.kind.KueueManaged || !known {
		return nil
	}
	mapping, err := s.Client.RESTMapper().RESTMapping(kueueWorkloadKind)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("discover Kueue: %w", err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind)
	err = s.Client.List(ctx, list, client.InNamespace(r.Namespace), client.MatchingLabels{workloadkind.LabelKueueJobUID: string(r.UID)})
	if err != nil {
		return fmt.Errorf("list Kueue Workloads: %w", err)
	}
	for i := range list.Items {
		workload := root{kind: kind, object: &list.Items[i], anyVersion: r.anyVersion}
		if err := do(workload); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("change Kueue Workload %s: %w", list.Items[i].GetName(), err)
		}
	}
	return nil
}
