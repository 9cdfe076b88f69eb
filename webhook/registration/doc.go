// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registration lets the API server trust the webhook.
//
// Enters: the certificate authority's file, ca.crt, and the two webhook
// configurations that the manifests install. Leaves: that authority as the
// caBundle of each of their entries, again whenever either changes.
//
// It never adds, removes or otherwise changes an entry: what is asked of the
// webhook is declared in the manifests, where people can read it.
package registration
