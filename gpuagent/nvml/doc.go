// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nvml is the place of the one seam to the driver: the real library,
// and a simulator that is harsher than it. It is not built yet.
//
// Enters: calls. Leaves: the driver's answers and errors. It never decides
// anything.
package nvml
