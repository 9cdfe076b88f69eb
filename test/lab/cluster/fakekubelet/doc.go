// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fakekubelet simulates the kubelet, NVIDIA's device plugin and the GPUs of nodes.
// For each node of its Config, Run registers a Node with the labels of GPU feature
// discovery and with its GPUs or MIG devices in capacity and allocatable. It admits each
// pod that is bound to the node: it assigns free devices and sets the condition
// PodReadyToStartContainers, after which kwok runs the pod, or it fails the pod with the
// kubelet's reasons (UnexpectedAdmissionError, OutOfcpu, ...). Sockets serve the kubelet's
// PodResources v1 and the node's simulated driver. A checkpoint holds the assigned devices,
// so that pods keep them when this process is killed and started again. The state of the
// GPUs is kept as well.
//
//	<dir>/nodes/<node>/kubelet_internal_checkpoint
//	<dir>/nodes/<node>/pod-resources/kubelet.sock
//	<dir>/nodes/<node>/gpus.json
//	<dir>/nodes/<node>/nvml.sock
//	<dir>/nodes/<node>/proc/
//	<dir>/nodes/kubelets.sock
//
// The last socket serves the kubelet's API for logs, exec, attach and port-forward of all
// nodes, if it is configured (package streaming). The log and the shell of a container are
// simulated as well.
//
// The device plugin reads the GPUs when this process starts and after SIGHUP. It then
// withdraws the node's devices for a moment, in which no pod gets any. In proc, this
// process represents the device plugin.
//
// A started pod has processes in proc and on its devices in the driver. They outlive the
// pod by a second, or by its annotation sim.sluice.dev/exit-delay. Until then its devices
// go only to pods for which no other device is free, and such a pod starts when the
// processes have ended.
//
// A node without a checkpoint has just booted. Its GPUs keep their MIG mode and lose their
// layout. As a kubelet does, it sets the extended resources of other components on the Node
// to zero. It admits its running pods again, the longest running first. An invalid
// checkpoint is an error, since the devices of running pods are then unknown.
//
// As a kubelet does, the package removes deleted pods from the API when they have ended; it
// does not remove finalizers. It does not schedule pods, partitions only the GPUs of new
// machines, and runs no containers. It has no other admission checks of the kubelet
// (taints, node affinity, topology, eviction).
package fakekubelet
