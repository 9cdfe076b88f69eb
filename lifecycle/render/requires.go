// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"fmt"
	"slices"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// Requires asks policies what they require for a subject. The failures are the
// policies of which that is not known; those that are only tried are left out. The
// error means that none could be asked.
func Requires(ctx context.Context, policies *engine.Set, subject Subject) ([]engine.Requirement, []engine.Failure, error) {
	in, err := subject.input()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", subject.place, err)
	}
	rendering, err := policies.EvaluateObjects(ctx, in)
	if err != nil {
		return nil, nil, fmt.Errorf("asking the policies what they require for %s: %w", subject.place, err)
	}
	failures := slices.DeleteFunc(rendering.Failures, func(f engine.Failure) bool {
		return f.Enforcement == v1alpha1.EnforcementDryRun
	})
	return rendering.Requires, failures, nil
}
