// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queuekinds knows what lifecycle rendered of kinds that come from CRDs:
// the queues of engines.
//
// Enters: whether the API server serves each kind, asked again and again, and the
// metadata of the objects that bear lifecycle's label, as watched. Leaves: which
// objects there are for a subject, and a controller's [Source], which brings a
// subject back when one of its objects was changed by somebody, and all of them
// when a kind comes or goes.
//
// It never reads what is in an object, and says nothing of a status that changes:
// engines write one with every pod. A kind that is not there is no error.
package queuekinds
