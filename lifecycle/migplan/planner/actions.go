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

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/v1alpha1"
)

// errConflict is why nothing was done with an object that is no longer what was looked at.
var errConflict = errors.New("it was changed meanwhile")

// applyActions does what was decided, one write after another. The first that fails ends it:
// all is looked at again.
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
			return fmt.Errorf("changing the GPUs of node %s: %w", a.node, err)
		}
		r.recordEvents(s, a, node, gpuNode, now)
	}
	return nil
}

// taintNode keeps new pods from a node. The taint says for which generation of the GPUNode
// it was put on, and when.
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

// untaintNode lets pods in again, if the GPUNode still is what the decision was made
// from: a cache may be behind.
func (r *Reconciler) untaintNode(ctx context.Context, node *corev1.Node, gpuNode *v1alpha1.GPUNode) error {
	if node == nil {
		return errConflict
	}
	var live v1alpha1.GPUNode
	err := r.Live.Get(ctx, types.NamespacedName{Name: node.Name}, &live)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("reading GPUNode %s: %w", node.Name, err)
	case gpuNode == nil || live.UID != gpuNode.UID || live.Generation != gpuNode.Generation || live.Status.ObservedGeneration != gpuNode.Status.ObservedGeneration:
		return errConflict
	}
	return r.patchTaints(ctx, node, otherTaints(node))
}

// otherTaints are a node's taints without the planner's.
func otherTaints(node *corev1.Node) []corev1.Taint {
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

// patchSpec says how a node's GPUs shall be cut, of the very GPUNode that was looked at,
// as it was: its status is what was planned on.
func (r *Reconciler) patchSpec(ctx context.Context, gpuNode *v1alpha1.GPUNode, spec []v1alpha1.DesiredGPU) error {
	if gpuNode == nil {
		return errConflict
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

// untaintOrphans takes the taint off nodes that nobody changes any more: their pool has gone,
// is not cut any more, or they are in two.
func (r *Reconciler) untaintOrphans(ctx context.Context, orphans []*corev1.Node) error {
	for _, node := range orphans {
		if err := r.patchTaints(ctx, node, otherTaints(node)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("taking the taint off node %s, which belongs to no pool that is cut: %w", node.Name, err)
		}
		log.FromContext(ctx).Info("took the taint off a node of no pool that is cut", "node", node.Name)
	}
	return nil
}

// recordEvents says what was done, to those who look at the node and at the pods that wait.
func (r *Reconciler) recordEvents(s *observedState, a *action, node *corev1.Node, gpuNode *v1alpha1.GPUNode, now time.Time) {
	about := func(kind, reason, verb, note string, args ...any) {
		r.Events.Eventf(node, nil, kind, reason, verb, note, args...)
		if gpuNode != nil {
			r.Events.Eventf(gpuNode, nil, kind, reason, verb, note, args...)
		}
	}
	switch a.verb {
	case addTaint:
		about(corev1.EventTypeNormal, "Repartitioning", "Taint", "its GPUs are to be cut anew; no new pods until then")
	case writeSpec:
		repartitionsTotal.WithLabelValues(map[bool]string{false: "written", true: "restored"}[a.restoresCurrent]).Inc()
		for _, i := range a.requests {
			w := &s.requests[i]
			pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.namespace, Name: w.name, UID: w.uid}
			r.Events.Eventf(pod, nil, corev1.EventTypeNormal, "CuttingGPU", "Cut", "%s is being made on node %s", w.describe(), node.Name)
		}
	case removeTaint:
		repartitionsTotal.WithLabelValues(outcomeLabels[a.outcome]).Inc()
		took := now.Sub(a.taintedSince)
		switch a.outcome {
		case outcomeDone:
			repartitionSeconds.Observe(took.Seconds())
			about(corev1.EventTypeNormal, "Repartitioned", "Untaint", "its GPUs are cut as planned, after %s", took.Round(time.Second))
		case outcomeAbandoned:
			about(corev1.EventTypeNormal, "RepartitioningAbandoned", "Untaint", "nothing was changed: %s", a.reason)
		case outcomeFailed, outcomeTimedOut:
			about(corev1.EventTypeWarning, "RepartitioningFailed", "Untaint", "%s", a.reason)
		}
	}
}

var (
	repartitionsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_mig_plans_total",
		Help: "Changes of nodes' GPUs, by what became of them: written, restored, then done, abandoned, failed, timed-out.",
	}, []string{"result"})
	demandGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_mig_demand",
		Help: "MIG instances that pods wait for, by profile.",
	}, []string{"profile"})
	repartitionSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_mig_change_seconds",
		Help:    "How long a node was tainted while its GPUs were cut anew, in machine time.",
		Buckets: []float64{5, 6, 7, 8, 10, 15, 20, 30, 60, 120, 240},
	})
	nodesRepartitioning = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_mig_nodes_changing",
		Help: "Nodes that are tainted while their GPUs are cut anew.",
	})
)

// outcomeLabels are the results of changes, as they stand in metrics.
var outcomeLabels = map[outcome]string{outcomeDone: "done", outcomeAbandoned: "abandoned", outcomeFailed: "failed", outcomeTimedOut: "timed-out"}

func init() { //nolint:gochecknoinits // how controller-runtime's registry is filled
	metrics.Registry.MustRegister(repartitionsTotal, demandGauge, repartitionSeconds, nodesRepartitioning)
}

// recordMetrics shows what a decision saw.
func recordMetrics(d *decision) {
	demandGauge.Reset()
	for profile, n := range d.requested {
		demandGauge.WithLabelValues(string(profile)).Set(float64(n))
	}
	changing := 0
	for at := range d.draft.nodes {
		if d.draft.nodes[at].taint != nil {
			changing++
		}
	}
	nodesRepartitioning.Set(float64(changing))
}
