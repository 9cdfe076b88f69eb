// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests holds what is installed into a cluster, as files that
// kubectl and kustomize read and as a file system for those who install it from
// Go: the CRDs, the ServiceAccounts with their rights and the webhook
// configurations (base), the agent of GPU nodes (agent), and a sample university.
//
// Enters: nothing. Leaves: [Files], and the objects that a kustomization in it
// builds. It never talks to a cluster.
package manifests
