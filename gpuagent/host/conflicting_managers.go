// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rivals tells who else cuts a node's GPUs: NVIDIA's MIG manager, or a DRA
// driver that makes MIG devices by itself. Both destroy what they do not know.
//
// Enters: the node's pods, and its processes. Leaves: the rivals, each with what to do
// about it.
//
// It never takes a user's pod for one, whatever its labels and command lines say.
//
// It never decides what becomes of them; the agent writes nothing to the driver while
// one is there.
package host

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/workload"
)

// ConflictingManager is somebody else who cuts the node's GPUs.
type ConflictingManager struct {
	// Name is what it is: NVIDIA's MIG manager.
	Name string
	// Location is the pod or the process by which it was recognized.
	Location string
	// Advice says how to have it leave the node alone.
	Advice string
}

// String is a sentence for people.
func (r ConflictingManager) String() string {
	return r.Name + " (" + r.Location + ") cuts this node's GPUs: " + r.Advice
}

var (
	migManager = ConflictingManager{
		Name:   "NVIDIA's MIG manager",
		Advice: "set the label nvidia.com/gpu.deploy.mig-manager of the node to false, or migManager.enabled of the GPU operator",
	}
	dynamicMIGDriver = ConflictingManager{
		Name:   "NVIDIA's DRA driver with DynamicMIG",
		Advice: "switch its feature gate DynamicMIG off, or keep it from the node",
	}
)

// dynamicMIGGate is how the DRA driver's feature gate is switched on, in an argument or in
// the environment.
const dynamicMIGGate = "DynamicMIG=true"

// draDriverNames are the names under which the DRA driver has been published.
var draDriverNames = []string{"nvidia-dra-driver-gpu", "dra-driver-nvidia-gpu"}

// migManagerPrograms are the programs of the MIG manager.
var migManagerPrograms = []string{"nvidia-mig-manager", "mig-manager", "nvidia-mig-parted"}

// PodProcess is a process of the node.
type PodProcess struct {
	// Command is its command line, the program without its folder.
	Command []string
	// Pods are the identities of the pods in which it runs, none where it runs in no
	// pod.
	Pods []types.UID
}

// FindConflictingManagers are the rivals among a node's pods and its processes; each is named once. Labels
// and command lines anybody can choose, so only what has the right to cut GPUs counts: else
// every user could keep the agent from its work.
func FindConflictingManagers(pods []corev1.Pod, processes []PodProcess) (found []ConflictingManager) {
	add := func(rival ConflictingManager, where string) {
		if !slices.ContainsFunc(found, func(r ConflictingManager) bool { return r.Name == rival.Name }) {
			rival.Location = where
			found = append(found, rival)
		}
	}
	for i := range pods {
		pod := &pods[i]
		where := "pod " + pod.Namespace + "/" + pod.Name
		switch {
		case workload.IsPodTerminal(pod):
		case !isPrivileged(pod):
		case pod.Labels["app"] == "nvidia-mig-manager":
			add(migManager, where)
		case isDRADriver(pod) && hasDynamicMIGGate(pod):
			add(dynamicMIGDriver, where)
		}
	}
	for i := range processes {
		words := processes[i].Command
		switch {
		case len(words) == 0 || isUnprivilegedProcess(pods, processes[i].Pods):
		case slices.Contains(migManagerPrograms, words[0]):
			add(migManager, "process "+words[0])
		case words[0] == "gpu-kubelet-plugin" && slices.ContainsFunc(words, containsDynamicMIGGate):
			add(dynamicMIGDriver, "process "+words[0])
		}
	}
	return found
}

// isPrivileged tells whether a pod may do what only the host's root may.
func isPrivileged(pod *corev1.Pod) bool {
	return pod.Spec.HostPID || slices.ContainsFunc(append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...), func(c corev1.Container) bool {
		s := c.SecurityContext
		return s != nil && (s.Privileged != nil && *s.Privileged ||
			s.Capabilities != nil && slices.ContainsFunc(s.Capabilities.Add, func(c corev1.Capability) bool { return c == "SYS_ADMIN" || c == "CAP_SYS_ADMIN" || c == "ALL" }))
	})
}

// isUnprivilegedProcess tells that one runs in a pod of this node that may not cut GPUs. What runs in
// no pod, or in one that nobody knows, may.
func isUnprivilegedProcess(pods []corev1.Pod, in []types.UID) bool {
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return slices.Contains(in, pod.UID) && !isPrivileged(&pod) })
}

func isDRADriver(pod *corev1.Pod) bool {
	return slices.Contains(draDriverNames, pod.Labels["app.kubernetes.io/name"])
}

// hasDynamicMIGGate tells whether a pod's feature gates make MIG devices dynamic.
func hasDynamicMIGGate(pod *corev1.Pod) bool {
	return slices.ContainsFunc(append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...), func(c corev1.Container) bool {
		return slices.ContainsFunc(append(slices.Clone(c.Command), c.Args...), containsDynamicMIGGate) ||
			slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return containsDynamicMIGGate(v.Value) })
	})
}

// containsDynamicMIGGate finds the gate in a list: --feature-gates=A=false,DynamicMIG=true.
func containsDynamicMIGGate(text string) bool {
	_, after, found := strings.Cut(text, dynamicMIGGate)
	return found && (after == "" || strings.ContainsAny(after[:1], ", \t\n;"))
}
