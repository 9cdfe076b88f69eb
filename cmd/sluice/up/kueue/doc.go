// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kueue fits Kueue into an embedded cluster, where it is a process on
// this machine and not a pod.
//
// Enters: the manifests of Kueue's own module, and where it is to listen on
// loopback. Leaves: its objects as they are applied there (kinds, rights, the
// webhooks by URL), the configuration that Sluice's policies for Kueue need, and
// the certificates of its webhooks.
//
// It never starts anything, and changes nothing of what Kueue may do.
package kueue
