// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices returns the pods that hold a node's GPUs and MIG devices.
//
// It combines the kubelet's PodResources, the pods bound to the node and the driver's list of
// instances. Package partition reads the holders before it destroys an instance.
//
// The package fails closed: after an error, devices count as in use. A pod that is bound to the
// node and has no device yet counts as holder of all devices that the kubelet may assign to it. The
// package never writes anything.
package devices
