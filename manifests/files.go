// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import "embed"

// Files are the manifests as they lie in this folder.
//
//go:embed crds base agent samples
var Files embed.FS

// The kustomizations in [Files].
const (
	// Base is what every installation needs.
	Base = "base"
	// Agent is Base with the agent on GPU nodes.
	Agent = "agent"
	// University is a sample: three departments with projects, and two pools.
	University = "samples/university"
	// Fairness is a sample for Kueue: four teams that share sixteen GPUs.
	Fairness = "samples/fairness"
)
