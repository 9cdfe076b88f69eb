// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package rivals

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/workload"
)

// Rival is somebody else who cuts the node's GPUs.
type Rival struct {
	// Name is what it is: NVIDIA's MIG manager.
	Name string
	// Where is the pod or the process by which it was recognised.
	Where string
	// Advice says how to have it leave the node alone.
	Advice string
}

// String is a sentence for people.
func (r Rival) String() string {
	return r.Name + " (" + r.Where + ") cuts this node's GPUs: " + r.Advice
}

var (
	migManager = Rival{
		Name:   "NVIDIA's MIG manager",
		Advice: "set the label nvidia.com/gpu.deploy.mig-manager of the node to false, or migManager.enabled of the GPU operator",
	}
	dynamicDRA = Rival{
		Name:   "NVIDIA's DRA driver with DynamicMIG",
		Advice: "switch its feature gate DynamicMIG off, or keep it from the node",
	}
)

// dynamicGate is how the DRA driver's feature gate is switched on, in an argument or in
// the environment.
const dynamicGate = "DynamicMIG=true"

// draNames are the names under which the DRA driver has been published.
var draNames = []string{"nvidia-dra-driver-gpu", "dra-driver-nvidia-gpu"}

// migPrograms are the programs of the MIG manager.
var migPrograms = []string{"nvidia-mig-manager", "mig-manager", "nvidia-mig-parted"}

// Process is a process of the node.
type Process struct {
	// Command is its command line, the program without its folder.
	Command []string
	// Pods are the identities of the pods in which it runs, none where it runs in no
	// pod.
	Pods []types.UID
}

// Find are the rivals among a node's pods and its processes; each is named once. Labels
// and command lines anybody can choose, so only what has the right to cut GPUs counts: else
// every user could keep the agent from its work.
func Find(pods []corev1.Pod, processes []Process) (found []Rival) {
	add := func(rival Rival, where string) {
		if !slices.ContainsFunc(found, func(r Rival) bool { return r.Name == rival.Name }) {
			rival.Where = where
			found = append(found, rival)
		}
	}
	for i := range pods {
		pod := &pods[i]
		where := "pod " + pod.Namespace + "/" + pod.Name
		switch {
		case workload.Ended(pod):
		case !mayCut(pod):
		case pod.Labels["app"] == "nvidia-mig-manager":
			add(migManager, where)
		case isDRA(pod) && gated(pod):
			add(dynamicDRA, where)
		}
	}
	for i := range processes {
		words := processes[i].Command
		switch {
		case len(words) == 0 || confined(pods, processes[i].Pods):
		case slices.Contains(migPrograms, words[0]):
			add(migManager, "process "+words[0])
		case words[0] == "gpu-kubelet-plugin" && slices.ContainsFunc(words, isGate):
			add(dynamicDRA, "process "+words[0])
		}
	}
	return found
}

// mayCut tells whether a pod may do what only the host's root may.
func mayCut(pod *corev1.Pod) bool {
	return pod.Spec.HostPID || slices.ContainsFunc(append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...), func(c corev1.Container) bool {
		s := c.SecurityContext
		return s != nil && (s.Privileged != nil && *s.Privileged ||
			s.Capabilities != nil && slices.ContainsFunc(s.Capabilities.Add, func(c corev1.Capability) bool { return c == "SYS_ADMIN" || c == "CAP_SYS_ADMIN" || c == "ALL" }))
	})
}

// confined tells that one runs in a pod of this node that may not cut GPUs. What runs in
// no pod, or in one that nobody knows, may.
func confined(pods []corev1.Pod, in []types.UID) bool {
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return slices.Contains(in, pod.UID) && !mayCut(&pod) })
}

func isDRA(pod *corev1.Pod) bool {
	return slices.Contains(draNames, pod.Labels["app.kubernetes.io/name"])
}

// gated tells whether a pod's feature gates make MIG devices dynamic.
func gated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...), func(c corev1.Container) bool {
		return slices.ContainsFunc(append(slices.Clone(c.Command), c.Args...), isGate) ||
			slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return isGate(v.Value) })
	})
}

// isGate finds the gate in a list: --feature-gates=A=false,DynamicMIG=true.
func isGate(text string) bool {
	_, after, found := strings.Cut(text, dynamicGate)
	return found && (after == "" || strings.ContainsAny(after[:1], ", \t\n;"))
}
