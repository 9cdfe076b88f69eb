// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package suspend stops root workloads, each by the action of its kind, and releases them.
//
// A [Stopper] gets a [Target] and the time until which it must stay stopped. One patch on
// the root writes the action and the annotation sluice.dev/stopped-until. Errors say whether
// the root is gone, forbidden, changed meanwhile, or of a kind that cannot be stopped. The
// actions are data in package workloadkind.
//
// A stop never deletes a pod that its controller would replace; [Stopper.EvictPod] does, for
// the pods that a stop action did not end. The package never changes another object with the
// same name, and never starts a workload. It decides neither when nor why.
package suspend
