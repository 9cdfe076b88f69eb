// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doors shuts the ways round Sluice's governance that need no Rego.
//
// Enters: the configured identities, DeviceClasses and settings. Leaves:
// ValidatingAdmissionPolicies with their bindings, which the API server evaluates
// itself, so that they hold while the webhook is down and stop nothing that is in
// order.
//
// It never shuts out what Kubernetes itself does to a pod that was admitted:
// binding, status, garbage collection, eviction. It sees one object at a time:
// what a pod only names, it judges where that is made.
package doors
