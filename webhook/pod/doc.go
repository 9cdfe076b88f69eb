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
// Pods of one controller are the same but for what the API server makes up for
// each: the name of the volume with its token, and, in the end, its own name, UID
// and time. Policies are asked about a pod whose token's volume has the same name
// in all, and without those of the other fields that none of them reads; so one of
// a controller's pods is judged, and the answer holds for all.
//
// It never writes to the cluster, and never lets in what it could not judge.
package pod
