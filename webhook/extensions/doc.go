// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package extensions judges Extensions: who asks for what, and who decides.
//
// Enters: an Extension that is made, or whose decision is written, with the user
// who does it; the project of its namespace, the department, and the clock of the
// workload. Leaves: an answer in words for whoever asks or decides, and a patch
// with what nobody can say of himself: who asked (sluice.dev/created-by), who
// decided, and when.
//
// It never grants anything, never repeats what the schema checks, and is not asked
// about what lifecycle writes: that goes on while the webhook is down.
package extensions
