// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pod serves the admission webhooks for pods in governed namespaces.
//
// The API server calls it twice before it stores a pod: [Mutator] can still change the pod, [Validator] runs after
// all mutating webhooks. A response has a patch, warnings or a denial, and audit annotations that name the policies.
// The namespace's label selects the pods that reach the webhook; the Projects determine the tenant.
//
// The pods of one controller differ only in what the API server generates: the name of the token volume, and later
// the pod's name, UID and creation time. Policies see a pod with a canonical volume name, and without those of the
// other fields that no policy reads. All pods of a controller thus have the same [podView] and share one evaluation.
//
// The package never writes to the cluster, and denies every pod that it could not evaluate.
package pod
