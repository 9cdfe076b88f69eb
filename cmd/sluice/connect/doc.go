// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connect finds the cluster that a command is to talk to, and its policy
// time.
//
// Enters: what a person said on the command line and in KUBECONFIG, read as
// kubectl reads it. Leaves: a client with that person's rights, the namespace
// that is meant, and the clock by which limits count there.
//
// It never asks the cluster anything by itself, and needs no right in it.
package connect
