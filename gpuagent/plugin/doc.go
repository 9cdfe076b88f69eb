// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin makes the NVIDIA device plugin enumerate its devices again, which it
// does by itself only when it starts or the kubelet does.
//
// Enters: the host's procfs, and how the plugin's command line begins. Leaves: a
// SIGHUP to its processes, and how many there are.
//
// It never signals a process that has no handler for SIGHUP, which would end it: that
// one is passed over, and said to be.
package plugin
