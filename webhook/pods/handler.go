// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Handler lets every pod in.
func Handler() admission.Handler {
	return admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		return admission.Allowed("")
	})
}
