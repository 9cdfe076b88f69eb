// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies is the Rego that is built in: core/*.rego says what holds for
// every pod of a project, schedulers/*.rego what each scheduler must read, and
// core/lib/*.rego is what they, and the policies of platform teams, share.
//
// Enters: nothing; the Rego is embedded when Sluice is built. Leaves: the sources
// of the built-in policies and the libraries, for package engine. Their answers
// are for package merge: the fields that a pod gets, what is refused, and the
// objects in which a scheduler keeps a project's quota.
//
// The built-in policies read little of their input, and none of them reads the
// time or the present use, so that the pods of one controller are judged once.
// They read these parameters, all of them optional:
//
//	core.gpu      allowClaims: true where resource claims are never of GPUs (false)
//	core.limits   minimumGraceSeconds: the least time that a GPU pod has to end (30)
//	core.devices  runtimeClasses: the names of those for GPU pods only
//	              (nvidia, nvidia-cdi, nvidia-legacy)
//	              refuseEnvFrom: true where the container toolkit heeds
//	              NVIDIA_VISIBLE_DEVICES of containers with GPUs (false)
//
// The package never evaluates a policy, never reads or writes the cluster, and
// never chooses a node.
package policies
