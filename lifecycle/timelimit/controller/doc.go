// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller maintains the WorkloadClocks: how long each workload has run, when its
// users are warned, and when it is stopped.
//
// [WorkloadIndex] maps the GPU pods of the pod cache to root workloads. [Reconciler] combines
// a clock with its running pods, the limits of project and department, the samples of
// GPUNodes and the granted Extensions, calls [timelimit.Decide], and carries out the
// decision: Notices first, then the clock's status, then the stop. [StopLimiter] prevents
// mass stops.
//
// A clock's status is updated with the resource version that was read, so that of two
// writers one gets a conflict. Nothing is written while nothing changes. The package never
// deletes a controller's pod, and never trusts a workload to name its project or creator.
package controller
