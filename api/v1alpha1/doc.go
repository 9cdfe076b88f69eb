// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the objects of the group sluice.dev: what people
// declare (NodePool, Department, Project, Policy, Extension), what Sluice keeps
// (GPUNode, WorkloadClock, Notice, UsageRecord), and the names it uses on other
// objects (keys.go and keys_foreign.go).
//
// What enters is YAML that the API server has checked against the schemas which
// are generated from these types, rules that span fields (CEL) included. What
// leaves are Go values and the few answers that need nothing but an object
// itself: a project's namespace, the limits that hold for a type of workload.
//
// The package never talks to a cluster, reads a clock or changes an object.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=sluice.dev
package v1alpha1
