// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clustertest gives the tests of a package one embedded cluster to share.
//
// Enters: a test binary's TestMain. Leaves: a cluster, and nothing of it
// afterwards.
//
// The cluster is started by the first test that asks for it and is gone when the
// test binary ends, also after a panic, a time-out or an interrupt. A test that
// fails shows what the cluster's components logged meanwhile. With
// SLUICE_KUBECONFIG set the tests run against that cluster instead.
//
//	func TestMain(m *testing.M) { clustertest.Main(m, installCRDs) }
//
//	func TestQuota(t *testing.T) {
//		c := clustertest.Start(t)
//		namespace := clustertest.Namespace(t, c)
//		...
//		clustertest.Eventually(t, func() error { ... })
//	}
//
// The package never starts a second cluster in one test binary; a test that needs
// one of its own, to kill or to misconfigure it, uses package cluster.
package clustertest
