// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin is NVIDIA's device plugin, and GPU feature discovery beside it, as far as
// they look at GPUs: both with MIG strategy "mixed".
//
// What enters is the driver. What leaves is what they see at that moment (Look), the
// devices that the plugin would report of it, and the labels that feature discovery
// would write. The package never changes a GPU, never remembers what it saw, and
// decides nothing about who is given what.
package plugin
