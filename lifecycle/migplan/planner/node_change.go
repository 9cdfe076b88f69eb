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
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// errConflict reports that an object changed after the decision read it.
var errConflict = errors.New("the object changed after it was read")

// applyActions writes the actions in order. The first failure ends the pass; the next pass
// observes and decides again.
//
// The change of a node takes seven steps:
//
//  1. taintNode keeps new pods away from the node.
//  2. [node.settledAt] waits until no pod was bound to the node for bindSettleTime.
//  3. listBoundPods lists the node's pods from the API server; [draft.explainLoss] stops
//     the change if the new layout would not hold them.
//  4. patchSpec writes GPUNode.spec.
//  5. The agent applies the spec and reports; [draft.finishChange] waits for it.
//  6. [draft.finishChange] waits until the node's allocatable matches the report.
//  7. untaintNode admits pods again, also after a failure or a restart.
func (r *Reconciler) applyActions(ctx context.Context, s *observedState, d *decision, now time.Time) error {
	for i := range d.actions {
		a := &d.actions[i]
		node, gpuNode := s.nodeObjects[a.node], s.gpuNodes[a.node]
		var err error
		switch a.verb {
		case addTaint:
			err = r.taintNode(ctx, node, gpuNode, now)
		case writeSpec:
			err = r.patchSpec(ctx, gpuNode, a.spec)
		case removeTaint:
			err = r.untaintNode(ctx, node, gpuNode)
		}
		if err != nil {
			return fmt.Errorf("repartition node %s: %w", a.node, err)
		}
		r.recordEvents(s, a, node, gpuNode, now)
	}
	return nil
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
	return r.patchTaints(ctx, node, taints)
}

// listBoundPods lists the pods of each node whose spec may be written in this pass. It reads
// from the API server, since the cache may lag behind a binding.
func (r *Reconciler) listBoundPods(ctx context.Context, s *observedState, now time.Time) error {
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.taint == nil || n.observed == nil || n.taint.generation != n.observed.generation {
			continue
		}
		if _, settled := n.settledAt(now); !settled {
			continue
		}
		var pods corev1.PodList
		if err := r.Live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": n.name}); err != nil {
			return fmt.Errorf("list pods of node %s: %w", n.name, err)
		}
		for k := range pods.Items {
			if pod := &pods.Items[k]; !workload.IsPodTerminal(pod) {
				n.boundPods = append(n.boundPods, newBoundPod(pod))
			}
		}
		n.podsListed = true
	}
	return nil
}

// patchSpec writes the desired layout. The precondition on the resource version ensures
// that the status is still the one that the decision was based on.
func (r *Reconciler) patchSpec(ctx context.Context, gpuNode *v1alpha1.GPUNode, spec []v1alpha1.DesiredGPU) error {
	if gpuNode == nil {
		return errConflict
	}
	return r.patch(ctx, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: gpuNode.Name}}, map[string]any{
		"metadata": map[string]any{"uid": gpuNode.UID, "resourceVersion": gpuNode.ResourceVersion}, "spec": map[string]any{"gpus": spec},
	})
}

// untaintNode removes the taint if the live GPUNode is the one that the decision was based
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
	return r.patchTaints(ctx, node, otherTaints(node))
}

// untaintOrphans removes the taint from nodes without a planned pool: the pool was deleted,
// its sharing changed, or two pools select the node.
func (r *Reconciler) untaintOrphans(ctx context.Context, orphans []*corev1.Node) error {
	for _, node := range orphans {
		if err := r.patchTaints(ctx, node, otherTaints(node)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove taint from node %s, which belongs to no pool with MIG: %w", node.Name, err)
		}
		log.FromContext(ctx).Info("Removed taint from node without MIG pool", "node", node.Name)
	}
	return nil
}

// otherTaints returns a node's taints without the planner's.
func otherTaints(node *corev1.Node) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintRepartitioning })
}

// patchTaints writes the taints of a node, with a precondition on its UID and resource version.
func (r *Reconciler) patchTaints(ctx context.Context, node *corev1.Node, taints []corev1.Taint) error {
	patch := map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}, "spec": map[string]any{"taints": taints},
	}
	if len(taints) == 0 {
		patch["spec"] = map[string]any{"taints": nil}
	}
	return r.patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}, patch)
}

func (r *Reconciler) patch(ctx context.Context, object client.Object, fields map[string]any) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("marshal patch: %w", err)
	}
	return r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, body), client.FieldOwner(v1alpha1.FieldManagerPlanner))
}
