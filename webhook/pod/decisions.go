// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

// maxDecisionsBytes limits the annotation, in bytes. A longer one keeps only the policies' names.
const maxDecisionsBytes = 4096

// DecisionsRemover removes the annotations of the Mutator that a pod's author or another webhook set. The API server
// calls it once, before the Mutator: an annotation that the Mutator meets is its own, from an earlier call.
type DecisionsRemover struct{}

var _ admission.Handler = DecisionsRemover{}

// Handle implements admission.Handler.
func (DecisionsRemover) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return admission.Allowed("")
	}
	before, err := evaluation.DecodeObject(req.Object.Raw)
	if err != nil {
		return evaluation.ErrorResponse(err)
	}
	response := admission.Allowed("")
	annotations := schema.AsMap(schema.AsMap(before["metadata"])["annotations"])
	after, metadata, kept := maps.Clone(before), cloneOrNew(before["metadata"]), maps.Clone(annotations)
	for _, key := range []string{v1alpha1.AnnotationDecisions, v1alpha1.AnnotationEvaluatedUnder} {
		if _, ok := kept[key]; ok {
			delete(kept, key)
			response.Warnings = append(response.Warnings, "metadata.annotations["+key+"]: only Sluice writes it; the value was removed")
		}
	}
	if len(kept) == len(annotations) {
		return response
	}
	metadata["annotations"], after["metadata"] = kept, metadata
	if err := evaluation.SetPatch(&response, before, after); err != nil {
		return evaluation.ErrorResponse(err)
	}
	return response
}

// deniesAfterPause is the decision of a policy that would have denied the pod without a pause.
const deniesAfterPause = "denial paused"

// exempted is the decision of a policy that would have denied the pod without an exemption.
const exempted = "denial exempted"

// recordDecisions returns the merged pod with an annotation of the paths that each policy changed:
// {"core.gpu": ["spec.containers[main].resources..."]}, and of the policies whose denial a pause or an
// exemption made a warning. If the API server calls the webhook again because another
// webhook changed the pod, the second call adds to the annotation.
func recordDecisions(result evaluation.Result) (map[string]any, error) {
	decisions := make(map[string][]string, len(result.Merged.ChangedPaths))
	former := schema.AsString(schema.AsMap(schema.AsMap(result.Original["metadata"])["annotations"])[v1alpha1.AnnotationDecisions])
	if len(former) > maxDecisionsBytes || json.Unmarshal([]byte(former), &decisions) != nil || decisions == nil {
		decisions = make(map[string][]string, len(result.Merged.ChangedPaths)) // there is none, or another webhook changed it
	}
	add := func(policy string, decided ...string) {
		all := slices.Concat(decisions[policy], decided)
		slices.Sort(all)
		decisions[policy] = slices.Compact(all)
	}
	for policy, paths := range result.Merged.ChangedPaths {
		add(policy, paths...)
	}
	for _, policy := range result.Paused {
		add(policy, deniesAfterPause)
	}
	for _, policy := range result.Exempted {
		add(policy, exempted)
	}
	text, err := json.Marshal(decisions)
	if err == nil && len(text) > maxDecisionsBytes {
		for policy := range decisions {
			decisions[policy] = nil
		}
		text, err = json.Marshal(decisions)
	}
	if err != nil {
		return nil, fmt.Errorf("encode decisions: %w", err)
	}
	after := maps.Clone(result.Merged.Object)
	metadata := cloneOrNew(after["metadata"])
	annotations := cloneOrNew(metadata["annotations"])
	annotations[v1alpha1.AnnotationDecisions] = string(text)
	metadata["annotations"] = annotations
	after["metadata"] = metadata
	return after, nil
}

// cloneOrNew returns a shallow copy of an object, or a new one.
func cloneOrNew(v any) map[string]any {
	if m := schema.AsMap(v); m != nil {
		return maps.Clone(m)
	}
	return make(map[string]any)
}
