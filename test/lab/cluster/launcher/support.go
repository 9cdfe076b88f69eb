// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// checkSupported returns an error that names every field of a pod that the launcher cannot
// fulfill. It lists what it supports, so that fields of later versions are errors too.
func checkSupported(pod *corev1.Pod) error {
	spec := pod.Spec.DeepCopy()
	var errs []error
	for i := range spec.Volumes {
		errs = append(errs, checkVolume(&spec.Volumes[i])...)
	}
	for i := range spec.InitContainers {
		errs = append(errs, checkContainer("initContainers", &spec.InitContainers[i], pod)...)
	}
	for i := range spec.Containers {
		errs = append(errs, checkContainer("containers", &spec.Containers[i], pod)...)
	}
	clearSupported(spec,
		"Volumes", "InitContainers", "Containers", "RestartPolicy", "TerminationGracePeriodSeconds", "DNSPolicy",
		"NodeSelector", "ServiceAccountName", "DeprecatedServiceAccount", "AutomountServiceAccountToken", "NodeName",
		"HostPID", "SecurityContext", "ImagePullSecrets", "Affinity", "SchedulerName", "Tolerations",
		"PriorityClassName", "Priority", "RuntimeClassName", "EnableServiceLinks", "PreemptionPolicy",
		"TopologySpreadConstraints", "OS")
	errs = append(errs, remaining("", spec))
	return errors.Join(errs...)
}

// clearSupported clears fields of the struct that object points to.
func clearSupported(object any, names ...string) {
	value := reflect.ValueOf(object).Elem()
	for _, name := range names {
		value.FieldByName(name).SetZero()
	}
}

// remaining returns an error that names the fields that an object still has.
func remaining(where string, object any) error {
	raw, err := json.Marshal(object)
	if err != nil {
		return err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	// These fields have no omitempty.
	maps.DeleteFunc(fields, func(_ string, value any) bool {
		return value == nil || value == "" || reflect.ValueOf(value).Kind() == reflect.Map && len(value.(map[string]any)) == 0
	})
	if len(fields) == 0 {
		return nil
	}
	return fmt.Errorf("%s%s: not supported by the launcher", where, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
}

func checkVolume(volume *corev1.Volume) []error {
	where := "volumes[" + volume.Name + "]."
	var errs []error
	if volume.Projected != nil {
		for _, source := range volume.Projected.Sources {
			clearSupported(&source, "ConfigMap", "Secret", "DownwardAPI", "ServiceAccountToken")
			errs = append(errs, remaining(where+"projected.", source))
		}
	}
	if host := volume.HostPath; host != nil {
		supported := []corev1.HostPathType{corev1.HostPathUnset, corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate}
		if kind := ptr.Deref(host.Type, ""); !slices.Contains(supported, kind) {
			errs = append(errs, fmt.Errorf("%shostPath.type %s: not supported by the launcher", where, kind))
		}
	}
	clearSupported(volume, "Name")
	clearSupported(&volume.VolumeSource, "ConfigMap", "Secret", "DownwardAPI", "Projected", "EmptyDir", "HostPath")
	return append(errs, remaining(where, volume))
}

func checkContainer(list string, container *corev1.Container, pod *corev1.Pod) []error {
	where := list + "[" + container.Name + "]."
	var errs []error
	for name, probe := range map[string]*corev1.Probe{
		"livenessProbe": container.LivenessProbe, "readinessProbe": container.ReadinessProbe, "startupProbe": container.StartupProbe,
	} {
		if probe == nil {
			continue
		}
		if _, err := probeTarget(probe, container); err != nil {
			errs = append(errs, fmt.Errorf("%s%s: %w", where, name, err))
		}
	}
	if hooks := container.Lifecycle.DeepCopy(); hooks != nil {
		if hooks.PreStop != nil {
			clearSupported(hooks.PreStop, "Sleep")
			errs = append(errs, remaining(where+"lifecycle.preStop.", hooks.PreStop))
		}
		clearSupported(hooks, "PreStop")
		errs = append(errs, remaining(where+"lifecycle.", hooks))
	}
	for i := range container.VolumeMounts {
		mount := container.VolumeMounts[i].DeepCopy()
		clearSupported(mount, "Name", "ReadOnly", "MountPath", "MountPropagation", "RecursiveReadOnly")
		errs = append(errs, remaining(where+"volumeMounts["+container.VolumeMounts[i].Name+"].", mount))
	}
	for _, port := range container.Ports {
		if port.HostPort != 0 || port.Protocol != "" && port.Protocol != corev1.ProtocolTCP {
			errs = append(errs, fmt.Errorf("%sports[%d]: the launcher supports only TCP without hostPort", where, port.ContainerPort))
		}
	}
	errs = append(errs, checkUser(where, container, pod))
	clearSupported(container, "Name", "Image", "ImagePullPolicy", "Command", "Args", "Env", "Ports", "Resources", "VolumeMounts",
		"LivenessProbe", "ReadinessProbe", "StartupProbe", "Lifecycle", "TerminationMessagePath", "TerminationMessagePolicy",
		"SecurityContext", "ResizePolicy")
	return append(errs, remaining(where, container))
}

// checkUser fails if a container must not run as root, and would.
func checkUser(where string, container *corev1.Container, pod *corev1.Pod) error {
	context, all := container.SecurityContext, pod.Spec.SecurityContext
	nonRoot := false
	if all != nil {
		nonRoot = ptr.Deref(all.RunAsNonRoot, false)
	}
	if context != nil {
		nonRoot = ptr.Deref(context.RunAsNonRoot, nonRoot)
	}
	if user := runAsUser(pod, container); nonRoot && user != nil && *user == 0 {
		return fmt.Errorf("%ssecurityContext: runAsNonRoot contradicts runAsUser 0", where)
	}
	return nil
}

// runAsUser returns the user of a container, or nil if the image decides.
func runAsUser(pod *corev1.Pod, container *corev1.Container) *int64 {
	if context := container.SecurityContext; context != nil && context.RunAsUser != nil {
		return context.RunAsUser
	}
	if context := pod.Spec.SecurityContext; context != nil {
		return context.RunAsUser
	}
	return nil
}

// runAsGroup returns the group of a container, or nil if the image decides.
func runAsGroup(pod *corev1.Pod, container *corev1.Container) *int64 {
	if context := container.SecurityContext; context != nil && context.RunAsGroup != nil {
		return context.RunAsGroup
	}
	if context := pod.Spec.SecurityContext; context != nil {
		return context.RunAsGroup
	}
	return nil
}
