// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgroup serves the admission webhook for the PodGroups of KAI-Scheduler in governed namespaces.
//
// The scheduler copies a group's queue and priority class from labels that any user can set. The webhook patches the
// group: a queue of the namespace's project, the nodes of that queue, one of Sluice's priority classes, and its
// preemptibility.
//
// It returns an error for a new group without a project, so that the scheduler retries, and never denies an update.
// An admission policy of the API server denies groups that users create or change.
package podgroup

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/kaigroup"
	"sluice.dev/webhook/evaluation"
)

// lifecycleUser is the user of the controller that moves groups between queues.
const lifecycleUser = "system:serviceaccount:" + v1alpha1.SystemNamespace + ":lifecycle"

// Mutator handles new and changed PodGroups.
type Mutator struct {
	// Tenants resolves the project that owns a namespace.
	Tenants *evaluation.TenantResolver
}

var _ admission.Handler = (*Mutator)(nil)

// Handle implements admission.Handler.
func (m *Mutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	response, err := m.mutate(ctx, &req)
	switch {
	case err == nil:
		return response
	case req.Operation == admissionv1.Update:
		// The group got its queue at creation. The message is for the log.
		response = admission.Allowed("")
		response.Result = &metav1.Status{Code: response.Result.Code, Message: err.Error()}
		return response
	default:
		return evaluation.ErrorResponse(err)
	}
}

func (m *Mutator) mutate(ctx context.Context, req *admission.Request) (admission.Response, error) {
	group, err := evaluation.DecodeObject(req.Object.Raw)
	if err != nil {
		return admission.Response{}, err
	}
	before, err := evaluation.DecodeObject(req.OldObject.Raw)
	if err != nil {
		return admission.Response{}, fmt.Errorf("old object: %w", err)
	}
	tenant, err := m.Tenants.Resolve(ctx, req.Namespace)
	if err != nil {
		return admission.Response{}, err
	}
	if tenant == nil {
		return admission.Response{}, fmt.Errorf("no project owns namespace %s yet, so the group has no queue; try again in a moment",
			req.Namespace)
	}
	after := mutateGroup(group, before, kaigroup.Placements(tenant.Project, tenant.NodePools), req.UserInfo.Username == lifecycleUser)
	response := admission.Allowed("")
	return response, evaluation.SetPatch(&response, group, after)
}

// mutateGroup returns the group with a queue of the project and a class of Sluice. before is nil for a new group.
//
// It keeps the group's queue if the queue belongs to the project: the lifecycle controller or another authorized
// user chose it. It keeps the group's class, except in a request of the lifecycle controller, which observes the
// group's pods. Otherwise the scheduler would overwrite the class with the labels of the pods' owner.
func mutateGroup(group, before kaigroup.Group, placements []kaigroup.Placement, isLifecycle bool) kaigroup.Group {
	placement, ok := kaigroup.FindPlacement(placements, group.Queue())
	if !ok && before != nil {
		placement, ok = kaigroup.FindPlacement(placements, before.Queue())
	}
	if !ok {
		placement, ok = kaigroup.DefaultPlacement(placements)
	}
	if ok {
		group = group.WithPlacement(placement)
	} else {
		group = group.WithoutQueue()
	}
	class := group.ClassName()
	if before != nil && !isLifecycle && kaigroup.IsSluiceClass(before.ClassName()) {
		class = before.ClassName()
	}
	return group.WithClass(kaigroup.ParseClass(class))
}
