// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podgroups

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
	"sluice.dev/policies/merge/patch"
	"sluice.dev/webhook/answer"
	"sluice.dev/webhook/tenant"
)

// lifecycle is the identity of the controller that moves groups.
const lifecycle = "system:serviceaccount:" + v1alpha1.SystemNamespace + ":lifecycle"

// Handler answers when a PodGroup is made or changed.
type Handler struct {
	// Tenants knows whose a namespace is.
	Tenants *tenant.Directory
}

var _ admission.Handler = (*Handler)(nil)

// Handle implements admission.Handler.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	response, err := h.settled(ctx, &req)
	switch {
	case err == nil:
		return response
	case req.Operation == admissionv1.Update:
		// The group was settled when it was made. What is wrong is for the log.
		passed := admission.Allowed("")
		passed.Result = &metav1.Status{Code: passed.Result.Code, Message: err.Error()}
		return passed
	default:
		return answer.Failed(err)
	}
}

func (h *Handler) settled(ctx context.Context, req *admission.Request) (admission.Response, error) {
	group, err := read(req.Object.Raw)
	if err != nil {
		return admission.Response{}, fmt.Errorf("reading the group: %w", err)
	}
	before, err := read(req.OldObject.Raw)
	if err != nil {
		return admission.Response{}, fmt.Errorf("reading the group before the change: %w", err)
	}
	owner, err := h.Tenants.Of(ctx, req.Namespace)
	if err != nil {
		return admission.Response{}, err
	}
	if owner == nil {
		return admission.Response{}, fmt.Errorf("no project has namespace %s yet, and so there is no queue for the group; try again in a moment", req.Namespace)
	}
	after := settle(group, before, kaigroup.Places(owner.Project, owner.Pools), req.UserInfo.Username == lifecycle)
	response := admission.Allowed("")
	operations := patch.Between(group, after)
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

// read is a group; nil where there is none.
func read(raw []byte) (kaigroup.Group, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var object map[string]any
	err := utiljson.Unmarshal(raw, &object)
	return object, err
}
