// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices simulates NVIDIA's device plugin and the kubelet's device manager.
// ReadGPUs reads the GPUs of a node's driver, OfGPUs returns the devices that the plugin
// reports of them, and Labels the labels of GPU feature discovery, all with MIG strategy
// "mixed". A State holds a node's devices and their assignment to pods; Admit returns the
// next State or the reason for a rejection. Encode and Decode convert the assignment to a
// checkpoint and back.
//
// A pod gets its devices at admission and keeps them until it has ended. Its processes may
// outlive it. Until they end, its devices go only to pods for which no other device is free,
// and such a pod waits (see State.BlockingPods). So a device never has two running pods, and
// never processes of two pods. The package does not change GPUs.
package devices
