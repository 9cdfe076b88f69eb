// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenant finds whose a namespace is, as policies are told it.
//
// Enters: the name of a namespace, and the cache of Projects, Departments and
// NodePools. Leaves: the [Tenant]: the project with its department and its
// pools, as documents that are made once and shared until one of the objects
// changes.
//
// It never asks the API server in the way of a request, and never writes.
package tenant
