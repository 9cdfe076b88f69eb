// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloads

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workload/kinds"
	"sluice.dev/policies/facts"
	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge/value"
	"sluice.dev/webhook/judge"
)

// stamped is the object with what its pods will be given written into its pod
// templates, where an engine counts those before there are pods. Its pods are then
// as their template says. What is warned of here, and once more where all templates
// are judged, the API server says once.
func (h *Handler) stamped(ctx context.Context, kind schema.GroupKind, object map[string]any, namespace string, q judge.Question) (map[string]any, judge.Judgement, error) {
	all := judge.Judgement{}
	if row, known := kinds.Of(kind); !known || !row.CountedEarly || !slices.ContainsFunc(q.Tenant.Pools, countsEarly) {
		return object, all, nil
	}
	found := kinds.Templates(kind, object)
	if len(found) == kinds.MaxTemplates {
		all.Denials = []intent.Complaint{{
			Message: fmt.Sprintf("it has %d pod templates or more, which are too many to be counted", len(found)),
			Fix:     "make several of it, with fewer kinds of pods each",
		}}
		return object, all, nil
	}
	q.Owner = ownerOf(kind, object)
	bodies := make(map[string]map[string]any, len(found))
	for _, t := range found {
		judged, err := h.Judge.SettleTemplate(ctx, t, namespace, q)
		if err != nil {
			return nil, judge.Judgement{}, err
		}
		all.Denials = append(all.Denials, judged.Denials...)
		all.Failed = all.Failed || judged.Failed
		if len(judged.Denials) > 0 || !goesToWhereItIsCounted(judged.Result.Object, q.Tenant.Pools) {
			continue
		}
		bodies[t.Place] = judge.TemplateOf(t, judged.Result.Object)
		all.Warnings = append(all.Warnings, judged.Warnings...)
		all.Result.Changes = join(all.Result.Changes, judged.Result.Changes)
	}
	if len(all.Denials) > 0 || len(bodies) == 0 {
		return object, all, nil
	}
	return kinds.WithTemplates(kind, object, bodies), all, nil
}

// countsEarly tells whether a pool's engine counts templates before there are pods.
func countsEarly(pool facts.Pool) bool { return pool.Scheduler == v1alpha1.SchedulerKueue }

// goesToWhereItIsCounted tells whether a pod goes to such a pool.
func goesToWhereItIsCounted(pod map[string]any, pools []facts.Pool) bool {
	name := value.Text(value.Map(value.Map(pod["metadata"])["labels"])[v1alpha1.LabelNodePool])
	return slices.ContainsFunc(pools, func(pool facts.Pool) bool { return pool.Name == name && countsEarly(pool) })
}

// ownerOf is of which kind a pod says that it is part of, as far as it matters for
// its type: a RayCluster serves where a RayService made it.
func ownerOf(kind schema.GroupKind, object map[string]any) workload.Owner {
	if controller, controlled := kinds.Controller(object); controlled {
		kind = controller
	}
	return workload.Owner{Group: kind.Group, Kind: kind.Kind}
}

func join(all, more map[string][]string) map[string][]string {
	joined := maps.Clone(all)
	if joined == nil {
		joined = make(map[string][]string, len(more))
	}
	maps.Copy(joined, more)
	return joined
}
