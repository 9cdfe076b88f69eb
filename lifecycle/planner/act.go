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
)

// errChanged is why nothing was done with an object that is no longer what was looked at.
var errChanged = errors.New("it was changed meanwhile")

// act does what was decided, one write after another. The first that fails ends it:
// all is looked at again.
func (r *Reconciler) act(ctx context.Context, s *seen, d *decision, now time.Time) error {
	for i := range d.actions {
		a := &d.actions[i]
		node, gpuNode := s.nodeObjects[a.node], s.gpuNodes[a.node]
		var err error
		switch a.verb {
		case putTaint:
			err = r.taint(ctx, node, gpuNode, now)
		case writeSpec:
			err = r.write(ctx, gpuNode, a.spec)
		case takeTaint:
			err = r.untaintSeen(ctx, node, gpuNode)
		}
		if err != nil {
			return fmt.Errorf("changing the GPUs of node %s: %w", a.node, err)
		}
		r.tell(s, a, node, gpuNode, now)
	}
	return nil
}

// taint keeps new pods from a node. The taint says for which generation of the GPUNode
// it was put on, and when.
func (r *Reconciler) taint(ctx context.Context, node *corev1.Node, gpuNode *v1alpha1.GPUNode, now time.Time) error {
	if node == nil || gpuNode == nil {
		return errChanged
	}
	taints := append(others(node), corev1.Taint{
		Key: v1alpha1.TaintRepartitioning, Value: strconv.FormatInt(gpuNode.Generation, 10),
		Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: now.Add(resolution)},
	})
	return r.patchTaints(ctx, node, taints)
}

// untaintSeen lets pods in again, if the GPUNode still is what the decision was made
// from: a cache may be behind.
func (r *Reconciler) untaintSeen(ctx context.Context, node *corev1.Node, gpuNode *v1alpha1.GPUNode) error {
	if node == nil {
		return errChanged
	}
	var live v1alpha1.GPUNode
	err := r.Live.Get(ctx, types.NamespacedName{Name: node.Name}, &live)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("reading GPUNode %s: %w", node.Name, err)
	case gpuNode == nil || live.UID != gpuNode.UID || live.Generation != gpuNode.Generation || live.Status.ObservedGeneration != gpuNode.Status.ObservedGeneration:
		return errChanged
	}
	return r.patchTaints(ctx, node, others(node))
}

// others are a node's taints without the planner's.
func others(node *corev1.Node) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintRepartitioning })
}

// patchTaints writes the taints of the very node that was looked at, as it was, and
// nothing else of it.
func (r *Reconciler) patchTaints(ctx context.Context, node *corev1.Node, taints []corev1.Taint) error {
	patch := map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": taints},
	}
	if len(taints) == 0 {
		patch["spec"] = map[string]any{"taints": nil}
	}
	return r.patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}, patch)
}

// write says how a node's GPUs shall be cut, of the very GPUNode that was looked at,
// as it was: its status is what was planned on.
func (r *Reconciler) write(ctx context.Context, gpuNode *v1alpha1.GPUNode, spec []v1alpha1.DesiredGPU) error {
	if gpuNode == nil {
		return errChanged
	}
	return r.patch(ctx, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: gpuNode.Name}}, map[string]any{
		"metadata": map[string]any{"uid": gpuNode.UID, "resourceVersion": gpuNode.ResourceVersion},
		"spec":     map[string]any{"gpus": spec},
	})
}

func (r *Reconciler) patch(ctx context.Context, object client.Object, fields map[string]any) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("writing the patch: %w", err)
	}
	return r.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, body), client.FieldOwner(v1alpha1.FieldManagerPlanner))
}

// sweep takes the taint off nodes that nobody changes any more: their pool has gone,
// is not cut any more, or they are in two.
func (r *Reconciler) sweep(ctx context.Context, orphans []*corev1.Node) error {
	for _, node := range orphans {
		if err := r.patchTaints(ctx, node, others(node)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("taking the taint off node %s, which belongs to no pool that is cut: %w", node.Name, err)
		}
		log.FromContext(ctx).Info("took the taint off a node of no pool that is cut", "node", node.Name)
	}
	return nil
}

// tell says what was done, to those who look at the node and at the pods that wait.
func (r *Reconciler) tell(s *seen, a *action, node *corev1.Node, gpuNode *v1alpha1.GPUNode, now time.Time) {
	about := func(kind, reason, verb, note string, args ...any) {
		r.Events.Eventf(node, nil, kind, reason, verb, note, args...)
		if gpuNode != nil {
			r.Events.Eventf(gpuNode, nil, kind, reason, verb, note, args...)
		}
	}
	switch a.verb {
	case putTaint:
		about(corev1.EventTypeNormal, "Repartitioning", "Taint", "its GPUs are to be cut anew; no new pods until then")
	case writeSpec:
		plans.WithLabelValues(map[bool]string{false: "written", true: "restored"}[a.restores]).Inc()
		for _, i := range a.wants {
			w := &s.wants[i]
			pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.namespace, Name: w.name, UID: w.uid}
			r.Events.Eventf(pod, nil, corev1.EventTypeNormal, "CuttingGPU", "Cut", "%s is being made on node %s", w.words(), node.Name)
		}
	case takeTaint:
		plans.WithLabelValues(outcomes[a.outcome]).Inc()
		took := now.Sub(a.since)
		switch a.outcome {
		case done:
			changeSeconds.Observe(took.Seconds())
			about(corev1.EventTypeNormal, "Repartitioned", "Untaint", "its GPUs are cut as planned, after %s", took.Round(time.Second))
		case abandoned:
			about(corev1.EventTypeNormal, "RepartitioningAbandoned", "Untaint", "nothing was changed: %s", a.why)
		case failed, timedOut:
			about(corev1.EventTypeWarning, "RepartitioningFailed", "Untaint", "%s", a.why)
		}
	}
}
