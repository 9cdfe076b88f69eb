// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload is the place of what a pod asks for. It is not built yet.
//
// Enters: any pod or pod template. Leaves: one Request (type, devices, share,
// memory, MIG profile), or an error that names the key, the value and what is
// allowed. It never does any I/O.
package workload
