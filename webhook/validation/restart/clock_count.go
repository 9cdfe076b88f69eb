// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/webhook/evaluation"
)

// denialOfCount returns why a user may create no further workload: the namespace has as many clocks as it may have, none of which lifecycle
// may delete, and the user has most of them.
func (v *Validator) denialOfCount(ctx context.Context, req *admission.Request) (string, error) {
	kind := schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}
	if req.Operation != admissionv1.Create || req.SubResource != "" || kind == kueueWorkloadKind {
		return "", nil
	}
	var clocks v1alpha1.WorkloadClockList
	if err := v.Clocks.List(ctx, &clocks, client.InNamespace(req.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list clocks: %w", err)
	}
	if len(clocks.Items) < v1alpha1.MaxClocks {
		return "", nil
	}
	object, err := evaluation.DecodeObject(req.Object.Raw)
	if err != nil {
		return "", err
	}
	if _, controlled := workloadkind.ControllerOf(object); controlled {
		return "", nil // the clock is that of its owner
	}
	byUser := map[string]int{}
	most := 0
	for i := range clocks.Items {
		user := clocks.Items[i].Status.CreatedBy
		byUser[user]++
		most = max(most, byUser[user])
	}
	if own := byUser[req.UserInfo.Username]; own == most {
		return fmt.Sprintf("namespace %s has %d workloads whose running time is kept, at most %d, and %d of them are of %s; "+
			"wait until the time of ended workloads is reset (resetAfter of the project), or run many steps in one workload, "+
			"such as a Job with several completions",
			req.Namespace, len(clocks.Items), v1alpha1.MaxClocks, own, req.UserInfo.Username), nil
	}
	return "", nil
}
