// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package up runs a cluster with Sluice on this machine: a real Kubernetes on
// loopback, simulated DGX nodes, Sluice's objects and components, a sample, and
// Kueue if requested. Its input is a folder and a few options; its output is the
// running cluster, and a screen that shows how to use it. Each component runs under
// its own ServiceAccount and gets no right that the manifests do not grant. The
// package never listens beyond loopback and never uses the user's own kubeconfig.
package up
