// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package build builds the programs of the embedded Kubernetes.
// The versions are pinned in the modules at test/lab/cluster/pins, and below it for
// Kueue, Helm and Prometheus, which are built only on request. Programs are cached under a key of all inputs that
// can change them. Processes that need the same programs at the same time wait for one
// build. SLUICE_CACHE sets the folder of the cache, SLUICE_PINS the folder of the pins
// module, and KUBEBUILDER_ASSETS a folder of ready programs, which replace built ones.
// The go command downloads the modules through its module proxy; go.mod and go.sum do not
// change.
package build
