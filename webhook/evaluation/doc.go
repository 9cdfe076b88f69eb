// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package judge asks the policies about a pod or a Job, and does what they want.
//
// Enters: a pod, a pod template or a Job, the request it came in, and whose namespace
// it is. Leaves: a [Judgment]: why it is refused, what its author is warned of,
// and what it becomes, with who changed what.
//
// The policies are asked, what they want is done, and they are asked once more
// about what came of it: a policy that then still wants something else is at
// fault, and is named.
//
// It never reads the cluster, and never changes what enters.
package evaluation
