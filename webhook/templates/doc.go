// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package templates tells the author of a workload at once what its pods would
// meet.
//
// Enters: the admission of an object that makes pods: a Job, a Deployment, a
// training operator's job. Leaves: the denial or the warnings that each of its
// pod templates would get as a pod, under the template's place in the object; and
// of a Deployment, what of its replicas and its rolling updates can never be.
//
// It never changes an object, and is not the gate: that is the pod. So it stands
// back where the webhook is down, where a template did not change, and where a
// controller made the object of another that was judged already.
package templates
