// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package filled tells what the author of a pod or a Job left open.
//
// Enters: a value of one, and where it stands. Leaves: whether it is absent or
// equals what the API server itself fills in before admission webhooks see the
// pod: by its defaults, and by the admission plugins that are on as Kubernetes is
// shipped (LimitRanger, ServiceAccount, Priority, DefaultTolerationSeconds,
// RuntimeClass' overhead). An author who wrote the very same value counts as
// having left it open, since nobody can tell.
//
// The table is held against a real API server by the tests: what that adds to a
// pod is open, all else is not. Three things that it adds cannot be told from the
// pod, and so count as the author's: the ServiceAccount's imagePullSecrets, and a
// RuntimeClass' node selector and tolerations.
//
// It never changes an object and never reads the cluster.
package filled
