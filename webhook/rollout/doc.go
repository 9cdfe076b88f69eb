// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollout knows of a Deployment what can never come about within a
// project's quota.
//
// Enters: the Deployment, the pod that its template makes, as policies made it,
// and the project's node pools. Leaves: warnings, with the fix: that its replicas
// do not all fit, or that a rolling update would wait for ever, since the new pod
// that it begins with fits beside all the old ones only.
//
// It never refuses anything, and looks at no present use: the project's other
// work comes and goes.
package rollout
