// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuagent

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/partition"
)

// carrying is a spec that is being carried out.
type carrying struct {
	uid        types.UID
	generation int64
	giveUp     context.CancelFunc
}

// carryOut cuts the GPUs as the GPUNode asks, for as long as it asks so: the driver may
// take minutes, and who has taken a spec back lets pods onto the node again. What was
// begun is led by the next spec to where that wants it.
func (a *agent) carryOut(ctx context.Context, node *v1alpha1.GPUNode) partition.Outcome {
	bounded, giveUp := context.WithCancel(ctx)
	defer giveUp()
	a.carrying.Store(&carrying{node.UID, node.Generation, giveUp})
	defer a.carrying.Store(nil)
	a.supersede(a.gpuNode(ctx)) // it may have changed before anybody could tell
	outcome := a.engine.Apply(bounded, node.Spec.GPUs, a.now.InUse)
	if bounded.Err() != nil {
		outcome.Observed = nil // by a context that has ended nobody was asked who has what
	}
	return outcome
}

// supersede gives up what is being carried out where the GPUNode asks for another thing,
// or has gone.
func (a *agent) supersede(now *v1alpha1.GPUNode) {
	at := a.carrying.Load()
	if at != nil && (now == nil || now.UID != at.uid || now.Generation != at.generation) {
		at.giveUp()
	}
}
