// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/clock"
)

// Recorded is handler under the name by which logs and metrics know it.
func Recorded(name string, logger logr.Logger, handler admission.Handler) admission.Handler {
	return &recorded{name: name, logger: logger.WithName("admission"), handler: handler}
}

type recorded struct {
	name    string
	logger  logr.Logger
	handler admission.Handler
}

// Handle implements admission.Handler.
func (r *recorded) Handle(ctx context.Context, req admission.Request) admission.Response {
	start := clock.MachineNow()
	response := r.handler.Handle(ctx, req)
	took := clock.MachineNow().Sub(start)
	observe(r.name, string(req.Operation), response.Allowed, took)
	r.log(req, response, took)
	return response
}

func (r *recorded) log(req admission.Request, response admission.Response, took time.Duration) {
	message := ""
	if response.Result != nil {
		message = response.Result.Message
	}
	r.logger.Info("decided",
		"webhook", r.name,
		"uid", string(req.UID),
		"operation", string(req.Operation),
		"resource", req.Resource.Resource,
		"subresource", req.SubResource,
		"namespace", req.Namespace,
		"name", req.Name,
		"user", req.UserInfo.Username,
		"dryRun", req.DryRun != nil && *req.DryRun,
		"allowed", response.Allowed,
		"message", message,
		"warnings", len(response.Warnings),
		"patchBytes", len(response.Patch),
		"decisions", response.AuditAnnotations,
		"durationMicroseconds", took.Microseconds(),
	)
}
