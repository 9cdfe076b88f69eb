// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/test/lab/cluster/fakekubelet/devices"
	"sluice.dev/test/lab/cluster/fakekubelet/toyshell"
	"sluice.dev/test/lab/cluster/launcher"
)

// maxVariable bounds the value of a variable, in bytes: references could double it again and
// again.
const maxVariable = 64 << 10

// containerView returns what commands see in a container of this node.
func (k *kubelet) containerView(pod *corev1.Pod, container *corev1.Container) toyshell.Container {
	k.mu.RLock()
	holder, _ := k.state.Pod(string(pod.UID))
	gpus := k.discovered
	k.mu.RUnlock()
	view := toyshell.Container{
		Hostname:      cmp.Or(pod.Spec.Hostname, pod.Name),
		User:          containerUser(pod, container),
		WorkingDir:    cmp.Or(container.WorkingDir, "/"),
		Files:         map[string]string{"/etc/hosts": fmt.Sprintf("127.0.0.1\tlocalhost\n%s\t%s\n", pod.Status.PodIP, pod.Name)},
		DriverVersion: k.driverVersion,
		Devices:       containerDevices(holder, container.Name, gpus),
	}
	for _, mount := range container.VolumeMounts {
		view.Folders = append(view.Folders, path.Clean("/"+mount.MountPath))
	}
	view.Env = containerEnv(pod, container, view.Hostname)
	if ids := grantedDevices(holder, container.Name); len(ids) > 0 {
		view.Env["NVIDIA_VISIBLE_DEVICES"] = strings.Join(ids, ",")
	}
	return view
}

// containerUser returns root, or the number of the user that the pod sets.
func containerUser(pod *corev1.Pod, container *corev1.Container) string {
	var uid int64
	if security := pod.Spec.SecurityContext; security != nil && security.RunAsUser != nil {
		uid = *security.RunAsUser
	}
	if security := container.SecurityContext; security != nil && security.RunAsUser != nil {
		uid = *security.RunAsUser
	}
	if uid == 0 {
		return "root"
	}
	return fmt.Sprintf("uid-%d", uid)
}

// containerEnv returns a container's variables. This process may not read Secrets and
// ConfigMaps, so variables from them have a text that says so.
func containerEnv(pod *corev1.Pod, container *corev1.Container, hostname string) map[string]string {
	env := map[string]string{
		"HOME":                    "/root",
		"HOSTNAME":                hostname,
		"KUBERNETES_SERVICE_HOST": "kubernetes.default.svc",
		"KUBERNETES_SERVICE_PORT": "443",
		"PATH":                    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
	for i := range container.Env {
		v := &container.Env[i]
		value := v.Value
		switch from := v.ValueFrom; {
		case from == nil:
			if expanded := launcher.Expand(value, env); len(expanded) <= maxVariable {
				value = expanded
			}
		case from.FieldRef != nil:
			value, _ = launcher.PodField(pod, from.FieldRef.FieldPath, pod.Status.PodIP)
		case from.SecretKeyRef != nil:
			value = fmt.Sprintf("(key %s of Secret %s: not read in this simulation)", from.SecretKeyRef.Key, from.SecretKeyRef.Name)
		case from.ConfigMapKeyRef != nil:
			value = fmt.Sprintf("(key %s of ConfigMap %s: not read in this simulation)", from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Name)
		default:
			value = "(not computed in this simulation)"
		}
		env[v.Name] = value
	}
	return env
}

// grantedDevices returns the IDs of a container's devices, sorted.
func grantedDevices(holder devices.Pod, container string) []string {
	var ids []string
	for _, grant := range holder.Grants {
		if grant.Container == container {
			for _, resource := range slices.Sorted(maps.Keys(grant.Devices)) {
				ids = append(ids, grant.Devices[resource]...)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// containerDevices returns a container's devices as nvidia-smi shows them, by GPU. The GPUs
// are numbered from 0, as the container sees no others.
func containerDevices(holder devices.Pod, container string, gpus []devices.GPU) []toyshell.Device {
	granted := grantedDevices(holder, container)
	var process devices.Process
	for _, p := range holder.Processes {
		if p.Container == container {
			process = p
		}
	}
	memory := devices.MemoryMiB(gpus)
	var list []toyshell.Device
	visible := 0
	for i := range gpus {
		before := len(list)
		for _, id := range granted {
			if device, found := deviceOn(&gpus[i], id); found {
				device.GPU, device.MemoryMiB = visible, memory[id]
				if used, runs := process.MemoryMiB[id]; runs {
					device.UsedMiB, device.Utilization, device.PID = used, process.Utilization, process.PID
				}
				list = append(list, device)
			}
		}
		if len(list) > before {
			visible++
		}
	}
	return list
}

// deviceOn returns a device if it is this GPU, a replica of it, or a MIG device on it.
func deviceOn(gpu *devices.GPU, id string) (toyshell.Device, bool) {
	device := toyshell.Device{Name: gpu.Name, UUID: gpu.UUID}
	driver := devices.DriverDevice(id)
	if driver == gpu.UUID {
		if gpu.Replicas > 1 {
			device.Share = fmt.Sprintf("1 of %d replicas", gpu.Replicas)
		}
		return device, true
	}
	for i := range gpu.Instances {
		if gpu.Instances[i].UUID == driver {
			device.Profile, device.MIGUUID = string(gpu.Instances[i].Name), driver
			return device, true
		}
	}
	return device, false
}
