// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package rivals

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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

// Find are the rivals among a node's pods and the command lines of its processes, their
// programs without the folders; each is named once.
func Find(pods []corev1.Pod, commands [][]string) (found []Rival) {
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
		case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		case pod.Labels["app"] == "nvidia-mig-manager":
			add(migManager, where)
		case isDRA(pod) && gated(pod):
			add(dynamicDRA, where)
		}
	}
	for _, words := range commands {
		switch {
		case len(words) == 0:
		case slices.Contains(migPrograms, words[0]):
			add(migManager, "process "+words[0])
		case words[0] == "gpu-kubelet-plugin" && slices.ContainsFunc(words, isGate):
			add(dynamicDRA, "process "+words[0])
		}
	}
	return found
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
