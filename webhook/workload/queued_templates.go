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
	"sluice.dev/policies/decision"
	"sluice.dev/policies/input"
	"sluice.dev/policies/merge"
	mergeschema "sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

// mutateTemplates applies the policies for pods to the object's templates if Kueue counts them before there are pods.
// The pods then equal their templates. [Validator] can repeat a warning; the API server shows it once.
func (m *Mutator) mutateTemplates(
	ctx context.Context, kind schema.GroupKind, object map[string]any, namespace string, request decision.Request,
) (map[string]any, evaluation.Result, error) {
	all := evaluation.Result{}
	known, _ := workloadkind.Lookup(kind)
	if !known.KueueCountsTemplates || !slices.ContainsFunc(request.Tenant.NodePools, isKueuePool) {
		return object, all, nil
	}
	templates := workloadkind.Templates(kind, object)
	if len(templates) == workloadkind.MaxTemplates {
		all.Denials = []merge.Finding{{
			Message: fmt.Sprintf("it has %d pod templates or more, which is too many for Kueue's quota", len(templates)),
			Fix:     "split it into several objects with fewer templates each",
		}}
		return object, all, nil
	}
	request.Owner = templateOwner(kind, object)
	bodies := make(map[string]map[string]any, len(templates))
	for _, t := range templates {
		result, err := m.Evaluator.MutateTemplate(ctx, t, namespace, request)
		if err != nil {
			return nil, evaluation.Result{}, err
		}
		all.Denials = append(all.Denials, result.Denials...)
		all.Transient = all.Transient || result.Transient
		if len(result.Denials) > 0 || !targetsKueuePool(result.Merged.Object, request.Tenant.NodePools) {
			continue
		}
		bodies[t.Path] = decision.TemplateFromPod(t, result.Merged.Object)
		all.Warnings = append(all.Warnings, result.Warnings...)
		all.Merged.ChangedPaths = mergeChanges(all.Merged.ChangedPaths, result.Merged.ChangedPaths)
	}
	if len(all.Denials) > 0 || len(bodies) == 0 {
		all.DenialPrefix = decision.DenialPrefix(object)
		return object, all, nil
	}
	return workloadkind.WithTemplates(kind, object, bodies), all, nil
}

// isKueuePool reports whether Kueue serves a pool.
func isKueuePool(pool input.NodePool) bool { return pool.Scheduler == v1alpha1.SchedulerKueue }

// targetsKueuePool reports whether a pod goes to a pool that Kueue serves.
func targetsKueuePool(pod map[string]any, pools []input.NodePool) bool {
	name := mergeschema.AsString(mergeschema.AsMap(mergeschema.AsMap(pod["metadata"])["labels"])[v1alpha1.LabelNodePool])
	return slices.ContainsFunc(pools, func(pool input.NodePool) bool { return pool.Name == name && isKueuePool(pool) })
}

// templateOwner returns the kind that determines the workload type of the object's pods: that of the controller, as
// for a RayCluster of a RayService, or of the object itself.
func templateOwner(kind schema.GroupKind, object map[string]any) workload.Owner {
	if controller, controlled := workloadkind.ControllerOf(object); controlled {
		kind = controller
	}
	return workload.Owner{Group: kind.Group, Kind: kind.Kind}
}

func mergeChanges(changes, more map[string][]string) map[string][]string {
	merged := maps.Clone(changes)
	if merged == nil {
		merged = make(map[string][]string, len(more))
	}
	maps.Copy(merged, more)
	return merged
}
