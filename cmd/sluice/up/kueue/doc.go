// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kueue adapts Kueue to an embedded cluster, where Kueue is a process and
// not a pod. From the manifests of Kueue's module and its addresses on loopback it
// returns the objects to apply, the configuration that Sluice's policies need, and
// the certificates of Kueue's webhooks. It starts no process and does not change
// Kueue's RBAC permissions.
package kueue
