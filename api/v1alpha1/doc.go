// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 defines the API objects of the group sluice.dev.
// Users write NodePools, Departments, Projects, Policies, Extensions and Presets.
// Sluice writes GPUNodes, WorkloadClocks, Notices and UsageRecords.
// Both write AdmissionParameters. Lifecycle renders ProjectParameters.
//
// keys.go and keys_foreign.go hold every label, annotation, taint and resource
// name that Sluice uses on other objects. The CRDs in manifests/crds are generated
// from these types, including the CEL rules. The package contains no client and
// reads no clock.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=sluice.dev
package v1alpha1
