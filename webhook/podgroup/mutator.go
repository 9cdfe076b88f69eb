// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgroups says in whose queue KAI-Scheduler's groups of pods are, and
// what they are worth.
//
// Enters: the creation or a change of a PodGroup in a governed namespace, by
// whomever: the scheduler takes a group's queue and class from labels that the
// owner of its pods was given by anybody. Leaves: a patch by which the group is in a
// queue of the namespace's project, on that queue's nodes, and of one of Sluice's
// priority classes, with its preemptibility said outright.
//
// It never refuses what the scheduler writes: a new group of which nobody can say
// whose it is fails, and is tried again; a change is let through. People's own
// groups and changes are refused by the API server itself.
package podgroup

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/kaigroup"
	"sluice.dev/policies/merge/jsonpatch"
	"sluice.dev/webhook/evaluation"
)

// lifecycleUser is the identity of the controller that moves groups.
const lifecycleUser = "system:serviceaccount:" + v1alpha1.SystemNamespace + ":lifecycle"

// Mutator answers when a PodGroup is made or changed.
type Mutator struct {
	// Tenants knows whose a namespace is.
	Tenants *evaluation.TenantResolver
}

var _ admission.Handler = (*Mutator)(nil)

// Handle implements admission.Handler.
func (h *Mutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	response, err := h.mutate(ctx, &req)
	switch {
	case err == nil:
		return response
	case req.Operation == admissionv1.Update:
		// The group was settled when it was made. What is wrong is for the log.
		passed := admission.Allowed("")
		passed.Result = &metav1.Status{Code: passed.Result.Code, Message: err.Error()}
		return passed
	default:
		return evaluation.ErrorResponse(err)
	}
}

func (h *Mutator) mutate(ctx context.Context, req *admission.Request) (admission.Response, error) {
	group, err := decodeGroup(req.Object.Raw)
	if err != nil {
		return admission.Response{}, fmt.Errorf("reading the group: %w", err)
	}
	before, err := decodeGroup(req.OldObject.Raw)
	if err != nil {
		return admission.Response{}, fmt.Errorf("reading the group before the change: %w", err)
	}
	owner, err := h.Tenants.Resolve(ctx, req.Namespace)
	if err != nil {
		return admission.Response{}, err
	}
	if owner == nil {
		return admission.Response{}, fmt.Errorf("no project has namespace %s yet, and so there is no queue for the group; try again in a moment", req.Namespace)
	}
	after := mutateGroup(group, before, kaigroup.Placements(owner.Project, owner.NodePools), req.UserInfo.Username == lifecycleUser)
	response := admission.Allowed("")
	operations := jsonpatch.Diff(group, after)
	if len(operations) == 0 {
		return response, nil
	}
	if response.Patch, err = json.Marshal(operations); err != nil {
		return admission.Response{}, fmt.Errorf("writing the patch: %w", err)
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.PatchType = &kind
	return response, nil
}

// decodeGroup is a group; nil where there is none.
func decodeGroup(raw []byte) (kaigroup.Group, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var object map[string]any
	err := utiljson.Unmarshal(raw, &object)
	return object, err
}

// mutateGroup is the group as it must be. Before is the group as it was, nil for a new
// one. Manager tells that lifecycle writes, which looks at the group's pods.
//
// A queue that is one of the project's stays: lifecycle, or who else may write
// groups, chose it among them. The class is settled once, since the scheduler writes
// again and again what it finds on the pods' owners.
func mutateGroup(group, before kaigroup.Group, places []kaigroup.Placement, manager bool) kaigroup.Group {
	place, ok := kaigroup.FindPlacement(places, group.Queue())
	if !ok && before != nil {
		place, ok = kaigroup.FindPlacement(places, before.Queue())
	}
	if !ok {
		place, ok = kaigroup.DefaultPlacement(places)
	}
	if ok {
		group = group.WithPlacement(place)
	} else {
		group = group.WithoutQueue()
	}
	class := group.ClassName()
	if before != nil && !manager && kaigroup.IsSluiceClass(before.ClassName()) {
		class = before.ClassName()
	}
	return group.WithClass(kaigroup.ParseClass(class))
}
