// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fakekubelet stands in for the kubelet, for NVIDIA's device plugin and for
// the GPUs of simulated nodes.
//
// What enters is a description of machines (Config). What leaves is a Node for
// each one, with the labels of GPU feature discovery and its GPUs or MIG
// devices in capacity and allocatable; and for each pod that is bound to it a decision: it is given free
// devices and the condition PodReadyToStartContainers, whereupon kwok runs it, or
// it is failed in the kubelet's words (UnexpectedAdmissionError, OutOfcpu, ...).
// Who holds what is served on a socket, by the kubelet's PodResources v1, and
// kept in a checkpoint: a pod keeps exactly its devices when this process is
// killed and started again. The node's driver answers on another socket, for the
// agent that cuts the GPUs; they, too, are as before after such an end.
//
//	<dir>/nodes/<node>/kubelet_internal_checkpoint
//	<dir>/nodes/<node>/pod-resources/kubelet.sock
//	<dir>/nodes/<node>/gpus.json
//	<dir>/nodes/<node>/nvml.sock
//	<dir>/nodes/<node>/proc/
//
// The device plugin looks at the GPUs when this process starts, and when it is sent
// SIGHUP: then the node's devices are gone for a moment, in which no pod is given any.
// Under proc, this process is the device plugin.
//
// A pod that starts has processes: in proc, and on its devices in the driver's eyes.
// They outlive it, by a second or as its annotation
// sim.sluice.dev/exit-delay says. So long its devices are not free: a pod that
// the scheduler sends after it, and that finds no others, is given them, and
// starts when the processes are gone.
//
// A node without a checkpoint is a machine that has just booted: its GPUs keep their
// MIG mode and lose their layout, extended
// resources that others have written on its Node are zeroed, as a kubelet does,
// and pods that ran there are admitted anew, the longest running first. A
// checkpoint that cannot be believed is an error: nothing is guessed about what
// running pods hold.
//
// A pod that was deleted and has nothing running is removed from the API, as a
// kubelet does; finalizers are left to their owners.
//
// The package never decides where a pod runs, never cuts a GPU of a machine that is not
// new, and runs no container. Of a kubelet's other admission checks (taints,
// node affinity, topology, eviction) it has none.
package fakekubelet
