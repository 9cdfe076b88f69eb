// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

// ParameterTable are the parameters of policies, by the policy and sorted by name.
var ParameterTable = parameterTable
