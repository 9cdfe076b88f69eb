// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent runs on each GPU node and partitions the node's GPUs as its GPUNode requests.
//
// One reconciler observes the GPUs, their processes and the kubelet's device assignments. It applies
// the layout of the GPUNode's spec, makes the device plugin enumerate its devices again, and publishes
// the GPUNode's status, events, metrics and a socket for `gpuagent status`. While a driver call hangs,
// the hungCallReporter reports it in place of the reconciler.
//
// The agent never evicts a pod, destroys an instance in use or writes a Node. It writes nothing to the
// driver while another MIG manager partitions the node's GPUs.
package agent
