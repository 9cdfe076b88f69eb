// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apply is the one engine by which lifecycle applies objects.
//
// An [Applier] applies the objects of a [Set] by server-side apply, under one field
// manager. It sends nothing for an object that the caches show as applied, reports
// objects of other people that have a desired name as a [Failure], and deletes what
// has the set's labels and is no longer desired. A set names its owner, its labels and
// its kinds; each [Kind] says which part of an object is compared. The calls are
// [Applier.ApplySet], then [Applier.Prune]; [Applier.RemoveSet] deletes a whole set.
//
// For the objects that policies render for a project, a department or a node pool,
// [Render] evaluates the policies for a [Subject] and [Applier.Apply] applies the
// result in the subject's [Target]. [QueueWatcher] watches the kinds of schedulers,
// whose CRDs may not be installed. [Status] applies a controller's fields of a status.
//
// Rendered objects are only of the kinds in kinds.go and only in the subject's
// Target. Nothing is deleted that lifecycle did not apply, and nothing at all while
// a policy fails.
package apply
