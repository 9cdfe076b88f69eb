// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package extension decides Extensions of a workload's time by the self-service of the
// department, and announces the decisions of people.
//
// [Reconciler] reads an Extension, the clock of its workload and the department's
// self-service limits from the API server. It approves within the limits, denies if the
// workload is gone, and otherwise sends a Notice and an event to those who must decide.
// It announces each decision once. Package controller adds the approved time to the clock.
//
// Extensions are decided one at a time in the order of their creation, so that a crash or
// two replicas approve none twice. The reconciler never changes a decision, and never
// decides an Extension after it requested a decision from people.
package extension
