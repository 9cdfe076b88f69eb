// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package brake shows the brake, which keeps very many workloads from being
// stopped at once, and releases it.
//
// Enters: the brake's ConfigMap. Leaves: what it says, and until when an
// administrator releases it.
//
// It never engages the brake, nor judges whether it should be: lifecycle does, and
// after a release that is over it counts anew.
package brake
