// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"context"

	"sluice.dev/policies/engine"
)

// Explain returns what each rule of a policy did for the object of a decision, or for the first of its templates.
func (c *Cluster) Explain(ctx context.Context, d *Decision, policy string) ([]engine.RuleTrace, error) {
	for _, result := range d.Results {
		if result.Input != nil {
			return c.set.Explain(ctx, *result.Input, policy)
		}
	}
	return nil, nil
}
