// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/api/v1alpha1"
)

// errConflict reports that an object changed after the decision read it.
var errConflict = errors.New("the object changed after it was read")

// applyActions writes the actions in order; a node whose change fails does not hold back the
// others. It reports whether another decision is due soon, since a node turned out to have no room
// for the pods of its change, and returns errConflict if only changed objects held back writes.
//
// The change of a node takes seven steps:
//
//  1. taintNode keeps new pods away from the node.
//  2. [node.settledAt] waits until no pod was bound to the node for bindSettleTime.
//  3. listClaims lists the node's pods from the API server, with those in their binding
//     cycle; [draft.explainLoss] stops the change if the new layout would not hold them. Before a
//     change of the MIG mode, [draft.pauseNode] stops NVIDIA's GPU clients, which start again after
//     the agent has reported.
//  4. patchSpec writes GPUNode.spec.
//  5. The agent applies the spec and reports; [draft.finishChange] waits for it.
//  6. [draft.finishChange] waits until the node's allocatable matches the report.
//  7. untaintNode admits pods again, also after a failure or a restart.
func (r *Reconciler) applyActions(ctx context.Context, s *observedState, d *decision, now time.Time) (again bool, err error) {
	var failed []error
	conflict := false
	for i := range d.actions {
		a := &d.actions[i]
		switch room, err := r.applyAction(ctx, s, a, now); {
		case errors.Is(err, errConflict), apierrors.IsNotFound(err), apierrors.IsConflict(err):
			conflict = true
		case err == nil && !room:
			again = true
		case err != nil:
			failed = append(failed, fmt.Errorf("repartition node %s: %w", a.node, err))
			if a.verb == addTaint && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) {
				b := d.nextState.nodeBackoff[a.node].next(now, nodeBackoffBase, nodeBackoffMax)
				b.reason = "the API server refused its taint: " + err.Error()
				d.nextState.nodeBackoff[a.node] = b
				again = true // another node may serve the request
			}
		default:
			r.recordEvents(s, a, s.nodeObjects[a.node], s.gpuNodes[a.node], now)
		}
	}
	if conflict && len(failed) == 0 {
		return again, errConflict
	}
	return again || conflict, errors.Join(failed...)
}

// applyAction writes one action. It returns false if the node has no room for the pods of its change.
func (r *Reconciler) applyAction(ctx context.Context, s *observedState, a *action, now time.Time) (room bool, err error) {
	node, gpuNode := s.nodeObjects[a.node], s.gpuNodes[a.node]
	switch a.verb {
	case addTaint:
		if room, err := r.confirmRoom(ctx, s, a, now); err != nil || !room {
			return false, err
		}
		return true, r.taintNode(ctx, node, gpuNode, now)
	case pauseClients:
		return true, r.patchNode(ctx, node, node.Spec.Taints, clientsOf(node).pausePatch())
	case resumeClients:
		return true, r.patchNode(ctx, node, node.Spec.Taints, clientsOf(node).resumePatch())
	case writeSpec:
		return true, r.patchSpec(ctx, gpuNode, a, now)
	case removeTaint:
		return true, r.untaintNode(ctx, node, gpuNode)
	}
	return true, nil
}

// taintNode keeps new pods away from a node. The taint holds the generation of the GPUNode
// and the time.
func (r *Reconciler) taintNode(ctx context.Context, node *corev1.Node, gpuNode *v1alpha1.GPUNode, now time.Time) error {
	if node == nil || gpuNode == nil {
		return errConflict
	}
	taints := append(otherTaints(node), corev1.Taint{
		Key: v1alpha1.TaintRepartitioning, Value: strconv.FormatInt(gpuNode.Generation, 10),
		Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: now.Add(apiTimeResolution)},
	})
	return r.patchNode(ctx, node, taints, nil)
}

// patchSpec writes the desired layout, and the time in an annotation. The precondition on the
// resource version ensures that the status is still the one that the decision was based on.
func (r *Reconciler) patchSpec(ctx context.Context, gpuNode *v1alpha1.GPUNode, a *action, now time.Time) error {
	if gpuNode == nil {
		return errConflict
	}
	metadata := map[string]any{"uid": gpuNode.UID, "resourceVersion": gpuNode.ResourceVersion}
	if !a.restoresCurrent {
		changes := append(recentChanges(parseChanges(gpuNode.Annotations[v1alpha1.RepartitionedAnnotation]), now), now)
		metadata["annotations"] = map[string]string{v1alpha1.RepartitionedAnnotation: formatChanges(changes)}
	}
	return r.patch(ctx, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: gpuNode.Name}}, map[string]any{
		"metadata": metadata, "spec": map[string]any{"gpus": a.spec},
	})
}

// maxRecordedChanges limits the times that the annotation records.
const maxRecordedChanges = 60

// parseChanges returns the times in the annotation [v1alpha1.RepartitionedAnnotation], without what
// is no time.
func parseChanges(list string) (changes []time.Time) {
	for text := range strings.SplitSeq(list, ",") {
		if at, err := time.Parse(time.RFC3339, text); err == nil && len(changes) < maxRecordedChanges {
			changes = append(changes, at)
		}
	}
	return changes
}

func formatChanges(changes []time.Time) string {
	texts := make([]string, len(changes))
	for i, at := range changes {
		texts[i] = at.UTC().Format(time.RFC3339)
	}
	return strings.Join(texts[max(0, len(texts)-maxRecordedChanges):], ",")
}

// recentChanges returns the changes within the last hour.
func recentChanges(changes []time.Time, now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(changes), func(at time.Time) bool { return now.Sub(at) >= time.Hour })
}

// untaintNode removes the taint and resumes the GPU clients if the live GPUNode is the one that the decision was based
// on; the cache may lag.
func (r *Reconciler) untaintNode(ctx context.Context, node *corev1.Node, gpuNode *v1alpha1.GPUNode) error {
	if node == nil {
		return errConflict
	}
	var live v1alpha1.GPUNode
	err := r.Live.Get(ctx, types.NamespacedName{Name: node.Name}, &live)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("get GPUNode %s: %w", node.Name, err)
	case gpuNode == nil || live.UID != gpuNode.UID || live.Generation != gpuNode.Generation ||
		live.Status.ObservedGeneration != gpuNode.Status.ObservedGeneration:
		return errConflict
	}
	return r.patchNode(ctx, node, otherTaints(node), clientsOf(node).resumePatch())
}

// untaintOrphans removes the taint from nodes without a planned pool, and resumes their GPU clients: the
// pool was deleted, its sharing changed, or two pools select the node. A node that cannot be changed does
// not hold back the others.
func (r *Reconciler) untaintOrphans(ctx context.Context, orphans []*corev1.Node) error {
	var failed []error
	for _, node := range orphans {
		err := r.patchNode(ctx, node, otherTaints(node), clientsOf(node).resumePatch())
		if client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("remove taint from node %s, which belongs to no pool with MIG: %w", node.Name, err))
			continue
		}
		log.FromContext(ctx).Info("Removed taint from node without MIG pool", "node", node.Name)
	}
	return errors.Join(failed...)
}

// otherTaints returns a node's taints without the planner's.
func otherTaints(node *corev1.Node) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintRepartitioning })
}

// patchNode writes the taints of a node and changes labels, with a precondition on its UID and resource
// version. One request does both, so that no crash comes in between.
func (r *Reconciler) patchNode(ctx context.Context, node *corev1.Node, taints []corev1.Taint, labels map[string]string) error {
	if node == nil {
		return errConflict
	}
	metadata := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	spec := map[string]any{"taints": taints}
	if len(taints) == 0 {
		spec["taints"] = nil
	}
	return r.patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}, map[string]any{"metadata": metadata, "spec": spec})
}

func (r *Reconciler) patch(ctx context.Context, object client.Object, fields map[string]any) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("marshal patch: %w", err)
	}
	return r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, body), client.FieldOwner(v1alpha1.FieldManagerPlanner))
}
