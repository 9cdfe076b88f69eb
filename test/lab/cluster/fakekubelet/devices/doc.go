// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices simulates a GPU server, NVIDIA's device plugin and the kubelet's device
// manager.
//
// A Machine describes the hardware, and the MIG layout of its GPUs when the machine is new.
// It returns the configuration of its GPUs for package simulator, and the capacity that a
// kubelet reports. Both depend only on the description and the node's name.
//
// ReadGPUs reads the GPUs of a node's driver, OfGPUs returns the devices that the plugin
// reports of them, and Labels the labels of GPU feature discovery, all with MIG strategy
// "mixed". A State holds a node's devices and their assignment to pods; Admit returns the
// next State or the reason for a rejection. Encode and Decode convert the assignment to a
// checkpoint and back.
//
// A pod gets its devices at admission and keeps them until it has ended. Its processes may
// outlive it. Until they end, its devices go only to pods for which no other device is free,
// and such a pod waits (see State.BlockingPods). So a device never has two running pods, and
// never processes of two pods. The package changes no GPUs but those of a new machine
// (see Machine.Partition).
package devices
