// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	corev1 "k8s.io/api/core/v1"
)

// container is a fragment of a pod with fields of its container.
func container(fields string) string {
	return "{spec: {containers: [{name: main, " + fields + "}]}}"
}

// What a pod may not contain. Pod Security of the cluster comes after Sluice's policies.
var _ = attacks(
	contents("a path of the node", `{spec: {volumes: [{name: v, hostPath: {path: /dev}}], containers: [{name: main, volumeMounts: [{name: v, mountPath: /x}]}]}}`, "mounts /dev of the node"),
	contents("a path by which the runtime hands out GPUs",
		`{spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: main, volumeMounts: [{name: v, mountPath: /var/run/nvidia-container-devices/all}]}]}}`,
		"requests devices outside the scheduler"),
	contents("privileged", container("securityContext: {privileged: true}"), "is privileged"),
	contents("SYS_ADMIN", container("securityContext: {capabilities: {add: [SYS_ADMIN]}}"), "adds the capability SYS_ADMIN"),
	contents("CAP_SYS_ADMIN", container("securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}}"), "SYS_ADMIN"),
	contents("a privileged init container", "{spec: {initContainers: [{name: init, image: any, securityContext: {privileged: true}}]}}", "is privileged"),
	contents("a device annotation", `{metadata: {annotations: {cdi.k8s.io/gpu: nvidia.com/gpu=all}}}`, injects),
	contents("a mount annotation", `{metadata: {annotations: {mounts.nri.io/container.main: "[{source: /, destination: /host, type: bind}]"}}}`, injects),
	contents("a mount annotation of a newer plugin", `{metadata: {annotations: {mounts.noderesource.dev: "[{source: /, destination: /host, type: bind}]"}}}`, injects),
	contents("a CDI annotation of a plugin", `{metadata: {annotations: {cdi-devices.noderesource.dev/pod: "[nvidia.com/gpu=all]"}}}`, injects),
	contents("a network device of the node", `{metadata: {annotations: {netdevice.noderesource.dev/pod: "[{name: eth0}]"}}}`, injects),
	contents("the network of the node", "{spec: {hostNetwork: true}}", "PodSecurity"),
	contents("the processes of the node", "{spec: {hostPID: true}}", "all processes of its node"),
	withoutDevices("all GPUs by a variable", container("env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]")),
	withoutDevices("all GPUs by a variable that comes twice",
		container("env: [{name: NVIDIA_VISIBLE_DEVICES, value: void}, {name: NVIDIA_VISIBLE_DEVICES, value: all}]")),
	withoutDevices("all GPUs by a variable of an init container",
		"{spec: {initContainers: [{name: init, image: any, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]}}"),
	withoutDevices("all GPUs by variables of a ConfigMap", container("envFrom: [{configMapRef: {name: any}}]")),
)

func contents(name, fragment, want string) row {
	return row{class: podContents, name: name, engines: everyEngine, attack: create("Pod", fragment), want: want}
}

// withoutDevices is a row whose pod is admitted, with containers that get no device.
func withoutDevices(name, fragment string) row {
	return row{class: podContents, name: name, engines: everyEngine, attack: create("Pod", fragment), harmless: onPod(func(pod *corev1.Pod) error {
		for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			var values []string
			for _, e := range c.Env {
				if e.Name == "NVIDIA_VISIBLE_DEVICES" {
					values = append(values, e.Value)
				}
			}
			if len(values) != 1 || values[0] != "void" {
				return fmt.Errorf("container %s has NVIDIA_VISIBLE_DEVICES=%q, want void", c.Name, values)
			}
		}
		return nil
	})}
}

// onPod is a harmless result that checks the admitted pod.
func onPod(check func(pod *corev1.Pod) error) func(a *attacker, got *unstructured.Unstructured) error {
	return func(_ *attacker, got *unstructured.Unstructured) error {
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, pod); err != nil {
			return err
		}
		return check(pod)
	}
}

// Classes and schedulers are those of the project's node pools.
var _ = attacks(
	row{
		class: priority, name: "a class of the system", engines: everyEngine, attack: create("Pod", "{spec: {priorityClassName: system-node-critical}}"),
		want: "system-node-critical",
	},
	row{
		class: priority, name: "the class of inference for training", engines: everyEngine,
		attack: createWith("Pod", limits("nvidia.com/gpu"), "{metadata: {labels: {sluice.dev/workload-type: train}}, spec: {priorityClassName: sluice-inference}}"),
		want:   "priority class sluice-inference is not for a pod of type train",
	},
	row{
		class: priority, name: "a class of GPU pods without a GPU", engines: everyEngine, attack: create("Pod", "{spec: {priorityClassName: sluice-inference}}"),
		want: "sluice-inference",
	},
	row{
		class: priority, name: "a class that does not exist", attack: create("Pod", "{spec: {priorityClassName: no-such-class}}"), want: "no-such-class",
	},
	row{
		class: queues, name: "another scheduler", attack: createWith("Pod", limits("nvidia.com/gpu"), "{spec: {schedulerName: other}}"),
		harmless: has("spec.schedulerName", "default-scheduler"),
	},
	row{
		class: names, name: "another project by a label of the pod", engines: everyEngine, attack: create("Pod", `{metadata: {labels: {sluice.dev/project: "{neighbor}"}}}`),
		harmless: lacks(neighborhood),
	},
	row{
		class: names, name: "a node pool that is not the project's", attack: createWith("Pod", limits("nvidia.com/gpu"), `{metadata: {annotations: {sluice.dev/node-pools: whole}}}`),
		want: "whole",
	},
	row{
		class: policyTime, name: "a pod that says when it ends", attack: createWith("Pod", limits("nvidia.com/gpu"), `{metadata: {annotations: {sluice.dev/ends-at: "2099-01-01T00:00:00Z"}}}`),
		harmless: lacks("2099"),
	},
	row{
		class: policyTime, name: "a pod that says that it is stopped",
		attack:   createWith("Pod", limits("nvidia.com/gpu"), `{metadata: {annotations: {sluice.dev/stopped-until: "2099-01-01T00:00:00Z"}}}`),
		harmless: lacks("2099"),
	},
	row{
		class: policyTime, name: "a longer time limit than the department's",
		attack:   createWith("Pod", limits("nvidia.com/gpu"), `{metadata: {annotations: {sluice.dev/max-runtime: 1000h}}}`),
		harmless: has("metadata.annotations.sluice\\.dev/time-limit", "48h"),
	},
	row{
		class: policyTime, name: "a pod that says that the least use is use",
		attack:   createWith("Pod", limits("nvidia.com/gpu"), `{metadata: {annotations: {sluice.dev/active: 1%/1h}}}`),
		harmless: has("metadata.annotations.sluice\\.dev/active", "5%/5m"),
	},
)

const injects = "gives the container devices or mounts of its node"
