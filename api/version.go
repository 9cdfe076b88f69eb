// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package api

// Version is the version of this build, stamped in by the linker.
var Version = "unknown"
