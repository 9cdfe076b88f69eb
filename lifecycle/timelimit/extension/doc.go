// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package extension approves or denies Extensions of a workload's time, and renewals of projects, by
// the self-service limits of the department, and announces the decisions of approvers.
//
// [Reconciler] reads an Extension, the clock of its workload and the department's
// self-service limits from the API server. It approves the Extension within the limits and
// denies it if the workload no longer exists. Otherwise it sends a Notice and an event to
// the approvers. It announces each decision once. Package controller adds the approved
// time to the clock.
//
// A renewal is decided by the project's phase, its owners and its number of renewals without
// approval. A project has one renewal at a time. Requests and decisions reach the owners and the
// contacts of the department. Package expiry applies approved renewals.
//
// Extensions are decided one at a time in the order of their creation, so that a crash or
// two replicas approve none twice. The reconciler never changes a decision, and never
// decides an Extension after it requested a decision from approvers.
package extension
