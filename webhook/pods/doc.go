// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pods answers the API server about pods of governed namespaces.
//
// Enters: the admission of a pod. Leaves: a patch, warnings or a denial, with
// audit annotations that say which policy did what. The namespace's label
// decides that a pod comes here at all; whose it is, the Projects decide.
//
// Before a pod is stored it is asked about twice: when it may still be changed
// ([Mutator]), and when all who may change it have ([Validator]).
//
// It never writes to the cluster, and never lets in what it could not judge.
package pods
