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

	"sluice.dev/test/lab/cluster/fakekubelet/devices"
	"sluice.dev/test/lab/cluster/kwok"
)

// defaultCommand is the command of a container that does not set one.
var defaultCommand = []string{"/usr/bin/python3", "main.py"}

// startProcesses starts the processes of a pod on its devices, once. It writes them to the
// checkpoint first. A *startError reports why a container cannot start.
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

// processesOf returns the processes of a pod that is about to start: one for each
// long-running container with devices.
func (k *kubelet) processesOf(pod *corev1.Pod, holder devices.Pod) ([]devices.Process, error) {
	behavior, err := parsePodBehavior(pod.Annotations)
	if err != nil {
		return nil, err // the annotations changed after admission
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
			Cgroup:      cgroupPath(qosClass(pod), string(pod.UID), containerID(pod, container.Name)),
			MemoryMiB:   granted[container.Name],
			Utilization: behavior.utilization,
		})
	}
	return processes, nil
}

// longRunningContainers returns the containers that run as long as their pod.
func longRunningContainers(pod *corev1.Pod) []corev1.Container {
	var containers []corev1.Container
	for _, container := range pod.Spec.InitContainers {
		if isSidecar(container) {
			containers = append(containers, container)
		}
	}
	return append(containers, pod.Spec.Containers...)
}

func qosClass(pod *corev1.Pod) cgroupClass {
	switch pod.Status.QOSClass {
	case corev1.PodQOSGuaranteed:
		return guaranteedPods
	case corev1.PodQOSBurstable:
		return burstablePods
	default:
		return bestEffortPods
	}
}

// containerID returns an ID in the format of a container runtime.
func containerID(pod *corev1.Pod, container string) string {
	sum := sha256.Sum256([]byte(string(pod.UID) + "/" + container))
	return hex.EncodeToString(sum[:])
}

// showProcesses adds processes to /proc, and then to the driver.
func (k *kubelet) showProcesses(processes []devices.Process) error {
	for _, p := range processes {
		if err := k.proc.AddProcess(procEntry{PID: p.PID, Command: p.Command, Cgroup: p.Cgroup, Started: p.Started}); err != nil {
			return err
		}
		for id, memory := range driverMemory(p.MemoryMiB) {
			if err := k.gpus.Attach(p.PID, id, memory, p.Utilization); err != nil {
				return &startError{container: p.Container, device: id, err: err}
			}
		}
	}
	return nil
}

// driverMemory returns the memory of a process by the devices that the driver knows: replicas of one GPU
// are one device.
func driverMemory(byDevice map[string]int64) map[string]int64 {
	memory := map[string]int64{}
	for id, mib := range byDevice {
		memory[devices.DriverDevice(id)] += mib
	}
	return memory
}

// hideProcesses removes processes from the driver and /proc.
func (k *kubelet) hideProcesses(processes []devices.Process) error {
	var errs []error
	for _, p := range processes {
		k.gpus.Detach(p.PID)
		errs = append(errs, k.proc.RemoveProcess(p.PID))
	}
	return errors.Join(errs...)
}

// restoreProcesses makes the GPUs and /proc match the checkpoint, after an earlier process
// was killed between any two steps.
func (k *kubelet) restoreProcesses() error {
	running := map[uint32]bool{}
	k.lastPID = firstPID - 1
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
		return fmt.Errorf("remove old processes from %s: %w", k.proc.Root, err)
	}
	for _, holder := range k.state.Pods() {
		var startErr *startError
		switch err := k.showProcesses(holder.Processes); {
		case errors.As(err, &startErr):
			k.log.Warn("Device of a process is gone", "pod", objectKey(holder.Namespace, holder.Name), "error", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// startError reports that a container cannot be started because a device is gone or has too
// little memory.
type startError struct {
	container, device string
	err               error
}

// Error returns the container runtime's message.
func (e *startError) Error() string {
	return fmt.Sprintf("failed to start container %q: nvidia-container-cli: device error: %s: %v", e.container, e.device, e.err)
}

// Annotations of a pod about its simulated processes. They are read when the pod is
// admitted.
const (
	// ExitDelay is the time for which the processes outlive the pod: "30s", "1h30m".
	ExitDelay = "sim.sluice.dev/exit-delay"
	// Memory is the memory, in MiB, that each container's process uses on each of its
	// devices: "8192". The default is nine tenths.
	Memory = "sim.sluice.dev/memory"
	// Utilization is the utilization of each device in percent: "0" to "100".
	Utilization = "sim.sluice.dev/utilization"

	defaultExitDelay   = time.Second
	defaultUtilization = 80
	// maxMemoryMiB, in MiB, exceeds the memory of any GPU.
	maxMemoryMiB = 1 << 24
)

// podBehavior is the simulation that the annotations configure.
type podBehavior struct {
	exitDelay   time.Duration
	memoryMiB   int64 // negative if not set
	utilization int
}

// parsePodBehavior returns an error that names the invalid annotation.
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
			return b, fmt.Errorf("annotation %s: %q is not an amount of memory in MiB: write a number from 0 to %d", Memory,
				value, maxMemoryMiB)
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

// parseNumber parses a canonical decimal number from 0 to most.
func parseNumber(value string, most int) (int, bool) {
	n, err := strconv.Atoi(value)
	return n, err == nil && n >= 0 && n <= most && strconv.Itoa(n) == value
}

// processMemory returns how much memory, in MiB, a process uses of a device with deviceMiB.
func (b podBehavior) processMemory(deviceMiB int64) int64 {
	if b.memoryMiB >= 0 {
		return b.memoryMiB
	}
	return deviceMiB * 9 / 10
}
