// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sluice.dev/api/workload"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/workloads"
)

// podFlags choose a pod and a container of a workload.
type podFlags struct {
	*workloadFlags
	pod, container string
}

func addPodFlags(cmd *cobra.Command) *podFlags {
	f := &podFlags{workloadFlags: addWorkloadFlags(cmd, namespaceScope)}
	cmd.Flags().StringVar(&f.pod, "pod", "", "Pod of the workload (default: the first that runs)")
	cmd.Flags().StringVarP(&f.container, "container", "c", "", "Container of the pod (default: its first, or that of its annotation)")
	completeFlag(cmd, "pod", f.completePods)
	completeFlag(cmd, "container", f.completeContainers)
	return f
}

// podTarget is a container of a pod of a workload, with a client that reaches it.
type podTarget struct {
	*clusterClient
	workload  *workloads.Workload
	pod       *corev1.Pod
	container string
}

// connectPod connects, and returns the pod and the container that the flags choose from the workload that the user
// named. It notes on standard error which pod that is if the workload has several.
func (f *podFlags) connectPod(cmd *cobra.Command, name string, needsRunning bool) (*podTarget, error) {
	c, w, err := f.findWorkload(cmd, name)
	if err != nil {
		return nil, err
	}
	target := &podTarget{clusterClient: c.clusterClient, workload: w}
	if target.pod, err = selectPod(w, f.pod, needsRunning); err != nil {
		return nil, err
	}
	if target.container, err = selectContainer(target.pod, f.container); err != nil {
		return nil, err
	}
	if len(w.Pods) > 1 && f.pod == "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s has %d pods; this is %s. Choose another with --pod.\n",
			referenceText(w), len(w.Pods), printer.Sanitize(target.pod.Name))
	}
	return target, nil
}

// selectPod returns the pod of a workload with a name; without a name the first that runs, or else the first.
func selectPod(w *workloads.Workload, name string, needsRunning bool) (*corev1.Pod, error) {
	var names []string
	var chosen *corev1.Pod
	for _, pod := range w.Pods {
		names = append(names, pod.Name)
		running := pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
		switch {
		case name != "" && pod.Name != name:
		case chosen == nil, running && chosen.Status.Phase != corev1.PodRunning:
			chosen = pod
		}
	}
	status, reason := w.Status()
	if reason != "" {
		status += ": " + reason
	}
	switch {
	case len(w.Pods) == 0:
		return nil, fmt.Errorf("%s has no pods (%s); `sluice get %s` says more", referenceText(w), status, referenceText(w))
	case chosen == nil:
		return nil, fmt.Errorf("--pod %s: %s has the pods %s", name, referenceText(w), strings.Join(names, ", "))
	case needsRunning && (chosen.Status.Phase != corev1.PodRunning || chosen.DeletionTimestamp != nil):
		if workload.IsPodTerminal(chosen) {
			return nil, fmt.Errorf("pod %s has ended (%s); `sluice logs %s` shows what it wrote", chosen.Name, status, referenceText(w))
		}
		return nil, fmt.Errorf("pod %s does not run yet (%s)", chosen.Name, status)
	}
	return chosen, nil
}

// defaultContainer is kubectl's annotation with the container of a pod that commands are for.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// containerNames returns the names of a pod's containers, and then of its init containers.
func containerNames(pod *corev1.Pod) []string {
	var names []string
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			names = append(names, containers[i].Name)
		}
	}
	return names
}

// selectContainer returns the container of a pod with a name, init containers included; without a name that of the
// annotation, or the first.
func selectContainer(pod *corev1.Pod, name string) (string, error) {
	if len(pod.Spec.Containers) == 0 {
		return "", fmt.Errorf("pod %s has no containers", pod.Name)
	}
	names := containerNames(pod)
	if name == "" {
		if preferred := pod.Annotations[defaultContainer]; slices.Contains(names[:len(pod.Spec.Containers)], preferred) {
			return preferred, nil
		}
		return names[0], nil
	}
	if !slices.Contains(names, name) {
		return "", fmt.Errorf("--container %s: pod %s has %s", name, pod.Name, strings.Join(names, ", "))
	}
	return name, nil
}

// streamConfig returns the connection for requests that last: without timeout.
func (c *clusterClient) streamConfig() *rest.Config {
	config := rest.CopyConfig(c.config)
	config.Timeout = 0
	return config
}

// podRequest returns a request for a subresource of a pod, such as exec.
func (c *clusterClient) podRequest(method string, pod *corev1.Pod, subresource string) (*rest.Request, error) {
	clientset, err := kubernetes.NewForConfig(c.streamConfig())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.config.Host, err)
	}
	return clientset.CoreV1().RESTClient().Verb(method).Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource(subresource), nil
}

// errNoTerminal: a terminal was requested, and standard input is none.
var errNoTerminal = errors.New("-t needs a terminal on standard input")
