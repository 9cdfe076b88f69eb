// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// program returns the path and the arguments of a container's process.
func (l *launcher) program(container *corev1.Container) (string, []string, error) {
	if len(container.Command) > 0 {
		name := path.Base(container.Command[0])
		if found, ok := l.Programs[name]; ok {
			return found, slices.Concat(container.Command[1:], container.Args), nil
		}
		return "", nil, fmt.Errorf("container %s: command %q is no program of the launcher; it has %s",
			container.Name, container.Command[0], l.programNames())
	}
	if found, ok := l.Programs[imageName(container.Image)]; ok {
		return found, slices.Clone(container.Args), nil
	}
	return "", nil, fmt.Errorf("container %s: image %q has no program here; the launcher has %s",
		container.Name, container.Image, l.programNames())
}

func (l *launcher) programNames() string {
	var names []string
	for name := range l.Programs {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// imageName returns the name of an image without registry, tag and digest.
func imageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name, _, _ := strings.Cut(path.Base(image), ":")
	return name
}

// environment returns a container's environment by name, in the order of the spec.
func (w *worker) environment(pod *corev1.Pod, container *corev1.Container) ([]string, map[string]string, error) {
	values := map[string]string{}
	var names []string
	for i := range container.Env {
		variable := &container.Env[i]
		value, found, err := w.variable(pod, container, variable, values)
		if err != nil {
			return nil, nil, fmt.Errorf("container %s: env %s: %w", container.Name, variable.Name, err)
		}
		if !found {
			continue
		}
		if _, repeated := values[variable.Name]; !repeated {
			names = append(names, variable.Name)
		}
		values[variable.Name] = value
	}
	var env []string
	for _, name := range names {
		env = append(env, name+"="+w.rewriter.rewrite(values[name]))
	}
	if slices.ContainsFunc(container.VolumeMounts, isIdentity) {
		if _, own := values["KUBECONFIG"]; !own {
			env = append(env, "KUBECONFIG="+filepath.Join(w.dir, "kubeconfig"))
		}
	}
	return env, values, nil
}

func isIdentity(mount corev1.VolumeMount) bool {
	return path.Clean(mount.MountPath) == serviceAccountPath
}

// variable returns the value of a variable; not found are optional ones.
func (w *worker) variable(pod *corev1.Pod, container *corev1.Container, v *corev1.EnvVar, before map[string]string) (string, bool, error) {
	from := v.ValueFrom
	switch {
	case from == nil:
		return Expand(v.Value, before), true, nil
	case from.FieldRef != nil:
		value, err := w.downwardValue(pod, from.FieldRef, nil)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err := resourceValue(container, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		if object := w.launcher.configMap(w.namespace, ref.Name); object != nil {
			if value, found := object.Data[ref.Key]; found {
				return value, true, nil
			}
		}
		return "", false, missingKey("configmap", ref.Name, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		if object := w.launcher.secret(w.namespace, ref.Name); object != nil {
			if value, found := object.Data[ref.Key]; found {
				return string(value), true, nil
			}
		}
		return "", false, missingKey("secret", ref.Name, ref.Key, ref.Optional)
	}
	return "", false, fmt.Errorf("the launcher does not support this source")
}

func missingKey(kind, name, key string, optional *bool) error {
	if ptr.Deref(optional, false) {
		return nil
	}
	return fmt.Errorf("%s %q with key %q not found", kind, name, key)
}

var reference = regexp.MustCompile(`\$\$|\$\([-._a-zA-Z0-9]+\)`)

// Expand replaces references $(NAME) to known variables, and $$ by $.
func Expand(text string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(match string) string {
		if match == "$$" {
			return "$"
		}
		if value, known := values[match[2:len(match)-1]]; known {
			return value
		}
		return match
	})
}

var mapKey = regexp.MustCompile(`^metadata\.(labels|annotations)\['(.+)'\]$`)

// downwardValue returns the value of a field of the pod, or of a container's resource.
func (w *worker) downwardValue(pod *corev1.Pod, field *corev1.ObjectFieldSelector, amount *corev1.ResourceFieldSelector) (string, error) {
	if amount != nil {
		for i := range pod.Spec.Containers {
			if container := &pod.Spec.Containers[i]; container.Name == amount.ContainerName {
				return resourceValue(container, amount)
			}
		}
		return "", fmt.Errorf("resourceFieldRef: no container %q", amount.ContainerName)
	}
	if value, known := PodField(pod, field.FieldPath, w.identity.ip.String()); known {
		return value, nil
	}
	return "", fmt.Errorf("fieldRef %s is not supported by the launcher", field.FieldPath)
}

// PodField returns the value of a field of a pod with this address, by the path of a fieldRef,
// and whether the path is known.
func PodField(pod *corev1.Pod, fieldPath, ip string) (value string, known bool) {
	if key := mapKey.FindStringSubmatch(fieldPath); key != nil {
		if key[1] == "labels" {
			return pod.Labels[key[2]], true
		}
		return pod.Annotations[key[2]], true
	}
	switch fieldPath {
	case "metadata.name":
		return pod.Name, true
	case "metadata.namespace":
		return pod.Namespace, true
	case "metadata.uid":
		return string(pod.UID), true
	case "spec.nodeName":
		return pod.Spec.NodeName, true
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, true
	case "status.podIP", "status.podIPs":
		return ip, true
	}
	return "", false
}

// resourceValue returns a limit or request of a container in units of the divisor, rounded
// up.
func resourceValue(container *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	amounts := map[string]corev1.ResourceList{"limits": container.Resources.Limits, "requests": container.Resources.Requests}[kind]
	amount, found := amounts[corev1.ResourceName(name)]
	if !found {
		return "", fmt.Errorf("resourceFieldRef %s: the container does not set it", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == string(corev1.ResourceCPU) {
		return strconv.FormatInt(divideUp(amount.MilliValue(), divisor.MilliValue()), 10), nil
	}
	return strconv.FormatInt(divideUp(amount.Value(), divisor.Value()), 10), nil
}

func divideUp(a, b int64) int64 { return (a + b - 1) / b }
