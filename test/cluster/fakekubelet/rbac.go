// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import _ "embed"

// RBAC holds, as YAML documents, the fake kubelet's ServiceAccount (fakekubelet,
// in namespace sluice-sim, which is not among them) and all that it may do.
//
//go:embed rbac.yaml
var RBAC []byte
