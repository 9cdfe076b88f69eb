// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/workload"
)

// ConflictingManager is another program that partitions the node's GPUs: NVIDIA's MIG manager, or a DRA
// driver that creates MIG devices. Both destroy instances that they do not know.
type ConflictingManager struct {
	// Name is its name: NVIDIA's MIG manager.
	Name string
	// Location is the pod or the process that was found.
	Location string
	// Advice says how to disable it on the node.
	Advice string
}

// String describes the manager in a sentence.
func (m ConflictingManager) String() string {
	return m.Name + " (" + m.Location + ") partitions this node's GPUs: " + m.Advice
}

var (
	migManager = ConflictingManager{
		Name:   "NVIDIA's MIG manager",
		Advice: "set the label nvidia.com/gpu.deploy.mig-manager of the node to false, or migManager.enabled of the GPU operator",
	}
	migManagerService = ConflictingManager{
		Name: "NVIDIA's MIG manager for hosts",
		Advice: "it restores its own layout at each boot, by default without MIG mode; " +
			"disable it on the node: systemctl disable --now " + migManagerUnit,
	}
	dynamicMIGDriver = ConflictingManager{
		Name:   "NVIDIA's DRA driver with DynamicMIG",
		Advice: "disable its feature gate DynamicMIG, or exclude the node",
	}
)

// dynamicMIGGate enables the DRA driver's feature gate, in an argument or an environment variable.
const dynamicMIGGate = "DynamicMIG=true"

// draDriverNames are the published names of the DRA driver.
var draDriverNames = []string{"nvidia-dra-driver-gpu", "dra-driver-nvidia-gpu"}

// migManagerPrograms are the programs of the MIG manager.
var migManagerPrograms = []string{"nvidia-mig-manager", "mig-manager", "nvidia-mig-parted"}

// FindConflictingManagers returns the managers among a node's pods and processes, each once. Any user can
// choose labels and command lines, so only pods and processes with the privileges to partition GPUs
// count. Otherwise every user could block the agent.
func FindConflictingManagers(pods []corev1.Pod, processes []Process) (found []ConflictingManager) {
	add := func(manager ConflictingManager, location string) {
		if !slices.ContainsFunc(found, func(m ConflictingManager) bool { return m.Name == manager.Name }) {
			manager.Location = location
			found = append(found, manager)
		}
	}
	for i := range pods {
		pod := &pods[i]
		location := "pod " + pod.Namespace + "/" + pod.Name
		switch {
		case workload.IsPodTerminal(pod):
		case !isPrivileged(pod):
		case pod.Labels["app"] == "nvidia-mig-manager":
			add(migManager, location)
		case isDRADriver(pod) && hasDynamicMIGGate(pod):
			add(dynamicMIGDriver, location)
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

// migManagerUnit is the unit of the MIG manager for hosts. It runs once at each boot, before any pod, so that
// no process shows it later.
const migManagerUnit = "nvidia-mig-manager.service"

// FindEnabledMIGManager returns the MIG manager for hosts if systemd starts it at boot: a folder *.wants or
// *.requires below folder, the host's /etc/systemd/system, has its unit, and the unit is not masked. A host
// without systemd has no such folder. The links lead to the host's file system and are not followed.
func FindEnabledMIGManager(folder string) ([]ConflictingManager, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the host's enabled units: %w", err)
	}
	if target, err := os.Readlink(filepath.Join(folder, migManagerUnit)); err == nil && target == os.DevNull {
		return nil, nil
	}
	for _, entry := range entries {
		if kind := filepath.Ext(entry.Name()); kind != ".wants" && kind != ".requires" {
			continue
		}
		switch _, err := os.Lstat(filepath.Join(folder, entry.Name(), migManagerUnit)); {
		case err == nil:
			found := migManagerService
			found.Location = "unit " + migManagerUnit + ", enabled by " + entry.Name()
			return []ConflictingManager{found}, nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return nil, fmt.Errorf("read the host's enabled units: %w", err)
		}
	}
	return nil, nil
}

// isPrivileged reports whether a pod has the rights of the host's root.
func isPrivileged(pod *corev1.Pod) bool {
	return pod.Spec.HostPID || slices.ContainsFunc(append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...),
		func(c corev1.Container) bool {
			s := c.SecurityContext
			return s != nil && (s.Privileged != nil && *s.Privileged ||
				s.Capabilities != nil && slices.ContainsFunc(s.Capabilities.Add,
					func(c corev1.Capability) bool { return c == "SYS_ADMIN" || c == "CAP_SYS_ADMIN" || c == "ALL" }))
		})
}

// isUnprivilegedProcess reports whether a process runs in a pod that cannot partition GPUs. It returns
// false for a process in an unknown pod or outside of pods.
func isUnprivilegedProcess(pods []corev1.Pod, in []types.UID) bool {
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return slices.Contains(in, pod.UID) && !isPrivileged(&pod) })
}

func isDRADriver(pod *corev1.Pod) bool {
	return slices.Contains(draDriverNames, pod.Labels["app.kubernetes.io/name"])
}

// hasDynamicMIGGate reports whether a pod enables the DRA driver's feature gate.
func hasDynamicMIGGate(pod *corev1.Pod) bool {
	return slices.ContainsFunc(append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...), func(c corev1.Container) bool {
		return slices.ContainsFunc(append(slices.Clone(c.Command), c.Args...), containsDynamicMIGGate) ||
			slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return containsDynamicMIGGate(v.Value) })
	})
}

// containsDynamicMIGGate reports whether a list contains the gate: --feature-gates=A=false,DynamicMIG=true.
func containsDynamicMIGGate(text string) bool {
	_, after, found := strings.Cut(text, dynamicMIGGate)
	return found && (after == "" || strings.ContainsAny(after[:1], ", \t\n;"))
}
