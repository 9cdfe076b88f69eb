// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki is the small certificate authority of an embedded cluster.
//
// A folder enters; a CA that is the same each time the folder is opened leaves,
// and with it certificates for servers on loopback, for clients (a user and
// groups) and the key pair that signs service account tokens. All keys are ECDSA
// P-256, all files 0600.
//
// It is for a cluster on one machine that its owner may throw away: it never
// revokes, never renews by itself, and asks nobody.
package pki
