// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kwok makes kwok play the nodes and pods of a simulated cluster.
//
// What enters is a kubeconfig. What leaves is kwok's configuration file, the
// command to start it with, and the rights it needs (RBAC). The package never
// starts anything, and knows no device: which pod gets which GPU is the fake kubelet's, and a pod
// starts only after that has admitted it (condition PodReadyToStartContainers).
//
// What kwok then plays, in stages/*.yaml: a node is made ready and kept so; an
// admitted pod runs until it is deleted, and then takes its whole grace period to
// end. It is the fake kubelet that removes it from the API afterwards, since kwok
// can delete only by name. A pod's author may say more, with the annotations
// RunFor, FailAfter and ExitCode. Containers that end are started
// again as the pod's restart policy says, with the usual back-off. A Job's pods
// are no exception: without RunFor they never complete.
//
// Not played: init containers' time (they end at once), probes, logs, exec,
// activeDeadlineSeconds, volumes. After a restart kwok may give a pod's address
// to a second pod; nothing listens on either.
package kwok
