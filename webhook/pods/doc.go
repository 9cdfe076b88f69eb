// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pods answers for pods of governed namespaces.
//
// Enters: the admission of a pod. Leaves: leave to go in, unchanged. The
// namespace's label decides that a pod comes here at all, and the record of the
// decision is made around this handler.
//
// It never refuses a pod, and never reads anything else.
package pods
