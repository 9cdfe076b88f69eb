// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restarts

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/clock"
	"sluice.dev/webhook/tenant"
)

// Handler answers when a workload is started.
type Handler struct {
	// Clocks is a cache of WorkloadClocks, with the index [StoppedClocks].
	Clocks client.Reader
	// Tenants knows whose a namespace is, for the words of an answer alone.
	Tenants *tenant.Directory
	// Clock is policy time.
	Clock clock.Clock
}

var _ admission.Handler = (*Handler)(nil)

// Handle implements admission.Handler. An error is no denial: the answer then says
// so for the log.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	begun, err := read(&req)
	if err != nil {
		return unsure(err)
	}
	if begun == nil {
		return admission.Allowed("")
	}
	found, err := h.stopOf(ctx, begun)
	if err != nil {
		return unsure(err)
	}
	if found == nil {
		return admission.Allowed("")
	}
	return admission.Denied(h.words(ctx, begun, found))
}

// unsure consents, since a webhook that errs must hold up nothing.
func unsure(err error) admission.Response {
	response := admission.Allowed("")
	response.Result = &metav1.Status{Code: response.Result.Code, Message: fmt.Sprintf("not checked whether it was stopped: %v", err)}
	return response
}
