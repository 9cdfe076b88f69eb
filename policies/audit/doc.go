// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package audit evaluates the objects of a cluster that exist already under the policies in force.
//
// [Auditor] decides on one pod or workload, and [Collector] sums up the findings of all: it is bounded, and equal objects have an
// equal [Report]. [Walk] reads the objects of all governed namespaces page by page and does both. Findings name the object that
// its author can change: what a controller's pods violate is reported at the workload, with the number of the pods.
//
// The package never writes to the cluster.
package audit
