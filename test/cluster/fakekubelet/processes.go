// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/test/cluster/fakekubelet/devices"
	"sluice.dev/test/cluster/fakekubelet/procfs"
	"sluice.dev/test/cluster/kwok"
)

// defaultCommand is what a container runs that leaves it to its image.
var defaultCommand = []string{"/usr/bin/python3", "main.py"}

// startProcesses puts the processes of a pod onto its devices, once. They are in the
// checkpoint first. The error is why a container cannot be started.
func (k *kubelet) startProcesses(pod *corev1.Pod) error {
	holder, held := k.state.Pod(string(pod.UID))
	if !held || len(holder.Processes) > 0 {
		return nil
	}
	processes, err := k.processesOf(pod, holder)
	if err != nil || len(processes) == 0 {
		return err
	}
	if err := k.saveState(k.state.Start(holder.UID, processes)); err != nil {
		return err
	}
	if err := k.showProcesses(processes); err != nil {
		return errors.Join(err, k.hideProcesses(processes), k.saveState(k.state.Start(holder.UID, nil)))
	}
	return nil
}

// processesOf are those of a pod that is about to start: one for each container that
// holds devices and lasts.
func (k *kubelet) processesOf(pod *corev1.Pod, holder devices.Pod) ([]devices.Process, error) {
	behavior, err := parsePodBehavior(pod.Annotations)
	if err != nil {
		return nil, err // it was admitted with others
	}
	granted := map[string]map[string]int64{}
	for _, grant := range holder.Grants {
		memory := map[string]int64{}
		for _, ids := range grant.Devices {
			for _, id := range ids {
				memory[id] = behavior.processMemory(k.memory[id])
			}
		}
		granted[grant.Container] = memory
	}
	var processes []devices.Process
	for _, container := range longRunningContainers(pod) {
		if len(granted[container.Name]) == 0 {
			continue
		}
		command := append(append([]string{}, container.Command...), container.Args...)
		if len(container.Command) == 0 {
			command = append(append([]string{}, defaultCommand...), container.Args...)
		}
		k.lastPID++
		processes = append(processes, devices.Process{
			Container:   container.Name,
			PID:         k.lastPID,
			Started:     time.Now().UTC().Round(0),
			Command:     command,
			Cgroup:      procfs.Cgroup(qosClass(pod), string(pod.UID), containerID(pod, container.Name)),
			MemoryMiB:   granted[container.Name],
			Utilization: behavior.utilization,
		})
	}
	return processes, nil
}

// longRunningContainers are the containers that run as long as their pod.
func longRunningContainers(pod *corev1.Pod) []corev1.Container {
	var containers []corev1.Container
	for _, container := range pod.Spec.InitContainers {
		if isSidecar(container) {
			containers = append(containers, container)
		}
	}
	return append(containers, pod.Spec.Containers...)
}

func qosClass(pod *corev1.Pod) procfs.QOS {
	switch pod.Status.QOSClass {
	case corev1.PodQOSGuaranteed:
		return procfs.Guaranteed
	case corev1.PodQOSBurstable:
		return procfs.Burstable
	default:
		return procfs.BestEffort
	}
}

// containerID is in the form of a container runtime's.
func containerID(pod *corev1.Pod, container string) string {
	sum := sha256.Sum256([]byte(string(pod.UID) + "/" + container))
	return hex.EncodeToString(sum[:])
}

// showProcesses shows processes in /proc, and then to the driver.
func (k *kubelet) showProcesses(processes []devices.Process) error {
	for _, p := range processes {
		if err := k.proc.AddProcess(procfs.Process{PID: p.PID, Command: p.Command, Cgroup: p.Cgroup, Started: p.Started}); err != nil {
			return err
		}
		for id, memory := range p.MemoryMiB {
			if err := k.gpus.Attach(p.PID, id, memory, p.Utilization); err != nil {
				return &startError{container: p.Container, device: id, err: err}
			}
		}
	}
	return nil
}

// hideProcesses is the end of processes.
func (k *kubelet) hideProcesses(processes []devices.Process) error {
	var errs []error
	for _, p := range processes {
		k.gpus.Detach(p.PID)
		errs = append(errs, k.proc.RemoveProcess(p.PID))
	}
	return errors.Join(errs...)
}

// restoreProcesses brings the GPUs and /proc in line with the checkpoint, after a
// process like this one has ended between any two steps.
func (k *kubelet) restoreProcesses() error {
	running := map[uint32]bool{}
	k.lastPID = procfs.FirstPID - 1
	for _, holder := range k.state.Pods() {
		for _, p := range holder.Processes {
			running[p.PID] = true
			k.lastPID = max(k.lastPID, p.PID)
		}
	}
	for _, pid := range k.gpus.PIDs() {
		if !running[pid] {
			k.gpus.Detach(pid)
		}
	}
	if err := k.proc.RetainProcesses(running); err != nil {
		return fmt.Errorf("clear %s: %w", k.proc.Root, err)
	}
	for _, holder := range k.state.Pods() {
		var cannot *startError
		switch err := k.showProcesses(holder.Processes); {
		case errors.As(err, &cannot):
			k.log.Warn("a process's device is gone", "pod", objectKey(holder.Namespace, holder.Name), "error", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// startError says why a container cannot be started: a device that it was given
// is not there any more, or has too little memory.
type startError struct {
	container, device string
	err               error
}

// Error uses the container runtime's words.
func (e *startError) Error() string {
	return fmt.Sprintf("failed to start container %q: nvidia-container-cli: device error: %s: %v", e.container, e.device, e.err)
}

// What a pod's author may write on it about its processes. It is read when the pod is
// admitted.
const (
	// ExitDelay says how long its processes outlive it: "30s", "1h30m".
	ExitDelay = "sim.sluice.dev/exit-delay"
	// Memory says how much memory each container's process takes of each of its
	// devices, in MiB: "8192". By default it is nine tenths.
	Memory = "sim.sluice.dev/memory"
	// Utilization says how busy they keep each device, in percent: "0" to "100".
	Utilization = "sim.sluice.dev/utilization"

	defaultExitDelay   = time.Second
	defaultUtilization = 80
	// maxMemoryMiB, in MiB, is more than any GPU has.
	maxMemoryMiB = 1 << 24
)

// podBehavior is what the annotations say, or leave to the defaults.
type podBehavior struct {
	exitDelay   time.Duration
	memoryMiB   int64 // negative where nobody says
	utilization int
}

// parsePodBehavior returns an error that says which of the annotations for the simulation
// is wrong.
func parsePodBehavior(annotations map[string]string) (podBehavior, error) {
	b := podBehavior{defaultExitDelay, -1, defaultUtilization}
	if value, set := annotations[ExitDelay]; set {
		err := kwok.CheckDuration(ExitDelay, value)
		if err == nil {
			b.exitDelay, err = time.ParseDuration(value)
		}
		if err != nil {
			return b, err
		}
	}
	if value, set := annotations[Memory]; set {
		n, ok := parseNumber(value, maxMemoryMiB)
		if !ok {
			return b, fmt.Errorf("annotation %s: %q is not an amount of memory in MiB: write a number from 0 to %d", Memory, value, maxMemoryMiB)
		}
		b.memoryMiB = int64(n)
	}
	if value, set := annotations[Utilization]; set {
		n, ok := parseNumber(value, 100)
		if !ok {
			return b, fmt.Errorf("annotation %s: %q is not a percentage: write a number from 0 to 100", Utilization, value)
		}
		b.utilization = n
	}
	return b, kwok.CheckAnnotations(annotations)
}

// parseNumber reads one from 0 to most, in the only way in which it can be written.
func parseNumber(value string, most int) (int, bool) {
	n, err := strconv.Atoi(value)
	return n, err == nil && n >= 0 && n <= most && strconv.Itoa(n) == value
}

// processMemory is how much of a device with so much memory, in MiB, a process takes.
func (b podBehavior) processMemory(deviceMiB int64) int64 {
	if b.memoryMiB >= 0 {
		return b.memoryMiB
	}
	return deviceMiB * 9 / 10
}
