// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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

// patchStop stops an object and marks it, in one patch; nothing where both are so.
func (s *Stopper) patchStop(ctx context.Context, r root, until string) error {
	kind, object := r.kind, r.object
	marked, isMarked := object.GetAnnotations()[v1alpha1.AnnotationStoppedUntil]
	asks := kind.RequestsPods(object)
	if isMarked && marked == until && !asks {
		return nil
	}
	marks := map[string]any{v1alpha1.AnnotationStoppedUntil: until}
	if kind.StopAction.Method == workloadkind.StopByScaling && asks {
		before := workloadkind.ReplicasAt(object, kind.StopAction.Path)
		marks[v1alpha1.AnnotationReplicasBefore] = strconv.FormatInt(before, 10)
	}
	err := s.applyPatch(ctx, object, r.mergePatch(kind.StopAction, marks))
	if (apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err)) && asks {
		// Its author can fill its annotations until none of ours fits. The verb
		// matters more; a start is then stopped again instead of refused.
		without := s.applyPatch(ctx, object, r.mergePatch(kind.StopAction, nil))
		if without == nil {
			ctrl.LoggerFrom(ctx).Info("stopped without a mark", "kind", object.GetKind(),
				"namespace", object.GetNamespace(), "name", object.GetName(), "reason", err.Error())
			return nil
		}
		err = errors.Join(err, without)
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && kind.IsFinished(object) {
		return nil // some operators let nothing be changed that has ended
	}
	return err
}

// removeStopAnnotation takes the mark off an object that has it. The number of replicas stays
// for its owner.
func (s *Stopper) removeStopAnnotation(ctx context.Context, r root) error {
	if _, marked := r.object.GetAnnotations()[v1alpha1.AnnotationStoppedUntil]; !marked {
		return nil
	}
	return s.applyPatch(ctx, r.object, r.mergePatch(workloadkind.StopAction{}, map[string]any{v1alpha1.AnnotationStoppedUntil: nil}))
}

// mergePatch is the JSON merge patch that stops and marks the object that was
// read, and no other that has its name; as it was read, unless any version will
// do.
func (r root) mergePatch(verb workloadkind.StopAction, marks map[string]any) map[string]any {
	body := map[string]any{}
	setNestedValue(body, string(r.object.GetUID()), "metadata", "uid")
	if !r.anyVersion {
		setNestedValue(body, r.object.GetResourceVersion(), "metadata", "resourceVersion")
	}
	for key, mark := range marks {
		setNestedValue(body, mark, "metadata", "annotations", key)
	}
	switch verb.Method {
	case workloadkind.StopByField:
		setNestedValue(body, verb.StopValue, verb.Path...)
	case workloadkind.StopByScaling:
		setNestedValue(body, 0, verb.Path...)
	case workloadkind.StopByAnnotation:
		setNestedValue(body, policytime.MachineNow().UTC().Format(time.RFC3339), verb.Path...)
	}
	return body
}

func setNestedValue(body map[string]any, v any, path ...string) {
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

func (s *Stopper) applyPatch(ctx context.Context, object *unstructured.Unstructured, body map[string]any) error {
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

// kueueWorkloadKind is the kind by which Kueue holds a workload.
var kueueWorkloadKind = schema.GroupKind{Group: workloadkind.GroupKueue, Kind: "Workload"}

// deactivateQueued stops what Kueue holds of the root, before the root itself: Kueue
// would start again what is only suspended. Anybody may have labeled a Workload
// with the root's UID, so the root is suspended all the same.
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

// StartCommands are the commands by which its owner starts the workload again, one a
// line; none where it must be made anew. What Kueue holds is started by Kueue,
// once its Workload is active again.
func (s *Stopper) StartCommands(ctx context.Context, t Target) ([]string, error) {
	r, err := s.getRoot(ctx, t)
	if err != nil {
		return nil, t.wrapError("reading", err)
	}
	var commands []string
	err = s.forEachQueued(ctx, r, func(workload root) error {
		if !workload.kind.RequestsPods(workload.object) {
			commands = append(commands, workload.kind.StartCommand(t.Namespace, workload.object.GetName(), 0))
		}
		return nil
	})
	if err != nil || len(commands) > 0 {
		return commands, t.wrapError("reading", err)
	}
	if command := r.kind.StartCommand(t.Namespace, t.Name, workloadkind.PreviousReplicas(r.object)); command != "" {
		commands = append(commands, command)
	}
	return commands, nil
}

// forEachQueued calls do with each Workload of the root; with none where its kind
// never has one, or the cluster has no Kueue.
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
		return fmt.Errorf("looking for Kueue: %w", err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind)
	err = s.Client.List(ctx, list, client.InNamespace(r.Namespace), client.MatchingLabels{workloadkind.LabelKueueJobUID: string(r.UID)})
	if err != nil {
		return fmt.Errorf("listing its Workloads of Kueue: %w", err)
	}
	for i := range list.Items {
		workload := root{kind: kind, object: &list.Items[i], anyVersion: r.anyVersion}
		if err := do(workload); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("its Workload %s of Kueue: %w", list.Items[i].GetName(), err)
		}
	}
	return nil
}
