// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/input"
	"sluice.dev/policies/merge"
	mergeschema "sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

// mutateTemplates is the object with what its pods will be given written into its pod
// templates, where an engine counts those before there are pods. Its pods are then
// as their template says. What is warned of here, and once more where all templates
// are judged, the API server says once.
func (h *Mutator) mutateTemplates(ctx context.Context, kind schema.GroupKind, object map[string]any, namespace string, q evaluation.Request) (map[string]any, evaluation.Result, error) {
	all := evaluation.Result{}
	if row, known := workloadkind.Lookup(kind); !known || !row.KueueCountsTemplates || !slices.ContainsFunc(q.Tenant.NodePools, isKueuePool) {
		return object, all, nil
	}
	found := workloadkind.Templates(kind, object)
	if len(found) == workloadkind.MaxTemplates {
		all.Denials = []merge.Finding{{
			Message: fmt.Sprintf("it has %d pod templates or more, which are too many to be counted", len(found)),
			Fix:     "make several of it, with fewer kinds of pods each",
		}}
		return object, all, nil
	}
	q.Owner = templateOwner(kind, object)
	bodies := make(map[string]map[string]any, len(found))
	for _, t := range found {
		judged, err := h.Evaluator.MutateTemplate(ctx, t, namespace, q)
		if err != nil {
			return nil, evaluation.Result{}, err
		}
		all.Denials = append(all.Denials, judged.Denials...)
		all.PolicyFailed = all.PolicyFailed || judged.PolicyFailed
		if len(judged.Denials) > 0 || !targetsKueuePool(judged.Merged.Object, q.Tenant.NodePools) {
			continue
		}
		bodies[t.Path] = evaluation.TemplateFromPod(t, judged.Merged.Object)
		all.Warnings = append(all.Warnings, judged.Warnings...)
		all.Merged.ChangedPaths = mergeChanges(all.Merged.ChangedPaths, judged.Merged.ChangedPaths)
	}
	if len(all.Denials) > 0 || len(bodies) == 0 {
		return object, all, nil
	}
	return workloadkind.WithTemplates(kind, object, bodies), all, nil
}

// isKueuePool tells whether a pool's engine counts templates before there are pods.
func isKueuePool(pool input.NodePool) bool { return pool.Scheduler == v1alpha1.SchedulerKueue }

// targetsKueuePool tells whether a pod goes to such a pool.
func targetsKueuePool(pod map[string]any, pools []input.NodePool) bool {
	name := mergeschema.AsString(mergeschema.AsMap(mergeschema.AsMap(pod["metadata"])["labels"])[v1alpha1.LabelNodePool])
	return slices.ContainsFunc(pools, func(pool input.NodePool) bool { return pool.Name == name && isKueuePool(pool) })
}

// templateOwner is of which kind a pod says that it is part of, as far as it matters for
// its type: a RayCluster serves where a RayService made it.
func templateOwner(kind schema.GroupKind, object map[string]any) workload.Owner {
	if controller, controlled := workloadkind.ControllerOf(object); controlled {
		kind = controller
	}
	return workload.Owner{Group: kind.Group, Kind: kind.Kind}
}

func mergeChanges(all, more map[string][]string) map[string][]string {
	joined := maps.Clone(all)
	if joined == nil {
		joined = make(map[string][]string, len(more))
	}
	maps.Copy(joined, more)
	return joined
}
