// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload/kinds"
)

// write stops an object and marks it, in one patch; nothing where both are so.
func (s *Stopper) write(ctx context.Context, r root, until string) error {
	kind, object := r.kind, r.object
	marked, isMarked := object.GetAnnotations()[v1alpha1.AnnotationStoppedUntil]
	asks := kind.AsksToRun(object)
	if isMarked && marked == until && !asks {
		return nil
	}
	marks := map[string]any{v1alpha1.AnnotationStoppedUntil: until}
	if kind.Verb.Form == kinds.FormReplicas && asks {
		before := kinds.Replicas(object, kind.Verb.Path)
		marks[v1alpha1.AnnotationReplicasBefore] = strconv.FormatInt(before, 10)
	}
	err := s.patch(ctx, object, r.mergePatch(kind.Verb, marks))
	if (apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err)) && asks {
		// Its author can fill its annotations until none of ours fits. The verb
		// matters more; a start is then stopped again instead of refused.
		without := s.patch(ctx, object, r.mergePatch(kind.Verb, nil))
		if without == nil {
			ctrl.LoggerFrom(ctx).Info("stopped without a mark", "kind", object.GetKind(),
				"namespace", object.GetNamespace(), "name", object.GetName(), "reason", err.Error())
			return nil
		}
		err = errors.Join(err, without)
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && kind.HasEnded(object) {
		return nil // some operators let nothing be changed that has ended
	}
	return err
}

// unmark takes the mark off an object that has it. The number of replicas stays
// for its owner.
func (s *Stopper) unmark(ctx context.Context, r root) error {
	if _, marked := r.object.GetAnnotations()[v1alpha1.AnnotationStoppedUntil]; !marked {
		return nil
	}
	return s.patch(ctx, r.object, r.mergePatch(kinds.Verb{}, map[string]any{v1alpha1.AnnotationStoppedUntil: nil}))
}

// mergePatch is the JSON merge patch that stops and marks the object that was
// read, and no other that has its name; as it was read, unless any version will
// do.
func (r root) mergePatch(verb kinds.Verb, marks map[string]any) map[string]any {
	body := map[string]any{}
	put(body, string(r.object.GetUID()), "metadata", "uid")
	if !r.anyVersion {
		put(body, r.object.GetResourceVersion(), "metadata", "resourceVersion")
	}
	for key, mark := range marks {
		put(body, mark, "metadata", "annotations", key)
	}
	switch verb.Form {
	case kinds.FormField:
		put(body, verb.Stop, verb.Path...)
	case kinds.FormReplicas:
		put(body, 0, verb.Path...)
	case kinds.FormMark:
		put(body, clock.MachineNow().UTC().Format(time.RFC3339), verb.Path...)
	}
	return body
}

func put(body map[string]any, v any, path ...string) {
	for _, key := range path[:len(path)-1] {
		next, ok := body[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			body[key] = next
		}
		body = next
	}
	body[path[len(path)-1]] = v
}

func (s *Stopper) patch(ctx context.Context, object *unstructured.Unstructured, body map[string]any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("writing the patch: %w", err)
	}
	answer := &unstructured.Unstructured{}
	answer.SetGroupVersionKind(object.GroupVersionKind())
	answer.SetNamespace(object.GetNamespace())
	answer.SetName(object.GetName())
	return s.Client.Patch(ctx, answer, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(v1alpha1.FieldManagerLifecycle))
}
