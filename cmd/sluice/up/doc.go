// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package up runs a whole cluster with Sluice in it on this machine.
//
// Enters: a folder and a few options. Leaves: a real Kubernetes on loopback
// with simulated DGX nodes, Sluice's objects, Sluice's components, each under
// its own ServiceAccount's token, with Kueue where it is asked for, a sample of
// who shares the nodes, and a screen that says what runs; and on the way down,
// nothing.
//
// It never listens beyond loopback, never uses the person's own kubeconfig, and
// gives no component a right that the manifests do not give it.
package up
