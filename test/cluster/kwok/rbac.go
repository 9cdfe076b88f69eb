// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kwok

import _ "embed"

// RBAC holds, as YAML documents, kwok's ServiceAccount (kwok, in namespace
// sluice-sim, which is not among them) and all that it may do.
//
//go:embed rbac.yaml
var RBAC []byte
