// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package build makes the programs that the embedded Kubernetes consists of, and
// the product's own for tests.
//
// Enters: names ("etcd", "kube-apiserver"). Leaves: paths of programs that run here.
// The versions stand in the pins modules (test/cluster/pins, and one below it for
// Kueue, which is built where somebody asks for it) and nowhere else.
// What was built once is kept in a cache, keyed by all that could change the
// outcome, and is not built again; processes that want the same at the same time
// wait for the one that builds.
//
// Three environment variables are read: SLUICE_CACHE (folder of the cache; the
// default is sluice in the user's cache folder), SLUICE_PINS (folder of the pins
// module, where it is not above the working directory or the program), and
// KUBEBUILDER_ASSETS (folder of ready programs, which are taken as they are).
//
// The package downloads nothing itself: the go command does, through its module
// proxy, on the first build. It never changes go.mod or go.sum.
package build
