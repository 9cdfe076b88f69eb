// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// exampleNamespace is the namespace of the workbench's example project.
const exampleNamespace = "sample"

// example is a pod or a Job on which policies are tried.
type example struct {
	// name describes it after "a pod": with the image tag latest.
	name   string
	object map[string]any
}

// examplePod returns a small pod, with changes.
func examplePod(change ...func(pod, spec, main map[string]any)) map[string]any {
	main := map[string]any{"name": "main", "image": "registry.example.org/team/train:v1"}
	spec := map[string]any{"containers": []any{main}}
	pod := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "example"}, "spec": spec,
	}
	for _, apply := range change {
		apply(pod, spec, main)
	}
	return pod
}

// mainWith returns a change of the main container.
func mainWith(key string, value any) func(pod, spec, main map[string]any) {
	return func(_, _, main map[string]any) { main[key] = value }
}

// specWith returns a change of the pod's spec.
func specWith(key string, value any) func(pod, spec, main map[string]any) {
	return func(_, spec, _ map[string]any) { spec[key] = value }
}

// metadataWith returns a change of the pod's metadata.
func metadataWith(key string, value any) func(pod, spec, main map[string]any) {
	return func(pod, _, _ map[string]any) { object(pod["metadata"])[key] = value }
}

func resources(limits map[string]any) map[string]any {
	return map[string]any{"limits": limits, "requests": limits}
}

// careful is the security context that most policies demand.
var careful = map[string]any{
	"allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": int64(1000), "readOnlyRootFilesystem": true,
	"privileged": false, "capabilities": map[string]any{"drop": []any{"ALL"}}, "seccompProfile": map[string]any{"type": "RuntimeDefault"},
}

// carefulPod returns a pod that keeps most rules, with changes.
func carefulPod(change ...func(pod, spec, main map[string]any)) map[string]any {
	small := map[string]any{"cpu": "1", "memory": "1Gi"}
	probe := map[string]any{"tcpSocket": map[string]any{"port": int64(8080)}}
	return examplePod(append([]func(pod, spec, main map[string]any){
		metadataWith("labels", map[string]any{"app": "train", "team": "vision", "owner": "anna", "app.kubernetes.io/name": "train"}),
		metadataWith("annotations", map[string]any{"owner": "anna"}),
		mainWith("resources", resources(small)), mainWith("securityContext", careful), mainWith("imagePullPolicy", "Always"),
		mainWith("livenessProbe", probe), mainWith("readinessProbe", probe),
		specWith("automountServiceAccountToken", false), specWith("restartPolicy", "Never"),
		specWith("securityContext", map[string]any{
			"runAsNonRoot": true, "fsGroup": int64(1000),
			"seccompProfile": map[string]any{"type": "RuntimeDefault"},
		}),
	}, change...)...)
}

// sharedExamples are pods that break one rule each that policies of clusters have, and pods that keep most of them.
func sharedExamples() []example {
	small := map[string]any{"cpu": "1", "memory": "1Gi"}
	all := []example{
		{"of one container", examplePod()},
		{"with labels, limits, probes and a careful security context", carefulPod()},
		{"with the image tag latest", examplePod(mainWith("image", "registry.example.org/team/train:latest"))},
		{"with an image without a tag", examplePod(mainWith("image", "busybox"))},
		{"with an image of another registry", examplePod(mainWith("image", "docker.io/library/busybox:1.37"))},
		{"with an image digest", examplePod(mainWith("image", "registry.example.org/a@sha256:"+zeros(64)))},
		{"with limits of CPU and memory", examplePod(mainWith("resources", resources(small)))},
		{"with very large limits", examplePod(mainWith("resources", resources(map[string]any{"cpu": "500", "memory": "4Ti"})))},
		{"that is privileged", examplePod(mainWith("securityContext", map[string]any{
			"privileged": true, "allowPrivilegeEscalation": true,
			"runAsUser": int64(0),
		}))},
		{"with added capabilities", examplePod(mainWith("securityContext",
			map[string]any{"capabilities": map[string]any{"add": []any{"NET_ADMIN", "SYS_ADMIN"}}}))},
		{"in the host's namespaces", examplePod(specWith("hostNetwork", true), specWith("hostPID", true), specWith("hostIPC", true))},
		{"with a host path", examplePod(
			specWith("volumes", []any{map[string]any{"name": "host", "hostPath": map[string]any{"path": "/var/lib"}}}),
			mainWith("volumeMounts", []any{map[string]any{"name": "host", "mountPath": "/host"}}))},
		{"with a host port", examplePod(mainWith("ports", []any{map[string]any{"containerPort": int64(80), "hostPort": int64(80)}}))},
		{"with a port", examplePod(mainWith("ports", []any{map[string]any{"containerPort": int64(8080), "name": "http"}}))},
		{"with the variable NVIDIA_VISIBLE_DEVICES", examplePod(mainWith("env", []any{map[string]any{
			"name":  "NVIDIA_VISIBLE_DEVICES",
			"value": "all",
		}}))},
		{"with a priority class", examplePod(specWith("priorityClassName", "system-node-critical"))},
		{"with a node selector", examplePod(specWith("nodeSelector", map[string]any{"zone": "a"}))},
		{"with a toleration of all taints", examplePod(specWith("tolerations", []any{map[string]any{"operator": "Exists"}}))},
		{"with another service account", examplePod(specWith("serviceAccountName", "builder"))},
		{"with an init container", examplePod(specWith("initContainers", []any{map[string]any{
			"name":  "prepare",
			"image": "docker.io/library/busybox:latest",
		}}))},
		{"with an emptyDir and a secret", examplePod(specWith("volumes", []any{
			map[string]any{"name": "scratch", "emptyDir": map[string]any{}}, map[string]any{
				"name":   "key",
				"secret": map[string]any{"secretName": "key"},
			},
		}))},
		{"that restarts always", examplePod(specWith("restartPolicy", "Always"))},
	}
	for _, gpus := range []string{"1", "2", "4", "8"} {
		all = append(all, example{"with GPUs: " + gpus, examplePod(mainWith("resources", resources(map[string]any{"nvidia.com/gpu": gpus})))})
	}
	return all
}

func zeros(count int) string { return string(slices.Repeat([]byte("0"), count)) }

// asJobs wraps the pods of examples in Jobs.
func asJobs(examples []example) []example {
	wrapped := make([]example, len(examples))
	for i, e := range examples {
		template := map[string]any{"spec": e.object["spec"], "metadata": object(runtime.DeepCopyJSON(e.object)["metadata"])}
		delete(object(template["metadata"]), "name")
		wrapped[i] = example{e.name, map[string]any{
			"apiVersion": "batch/v1", "kind": "Job", "metadata": runtime.DeepCopyJSON(e.object)["metadata"],
			"spec": map[string]any{"template": template},
		}}
	}
	return wrapped
}

// parameterExamples returns pods that have the texts of parameters where these often belong: as labels, annotations,
// registries, and names.
func parameterExamples(parameters any, kinds []string) []example {
	found := make(map[string]bool)
	collectTexts(parameters, found)
	values := slices.Sorted(maps.Keys(found))
	if len(values) > 40 {
		values = values[:40]
	}
	var all []example
	labels := make(map[string]any)
	for _, value := range values {
		if isLabelKey(value) {
			labels[value] = "example"
		}
	}
	if len(labels) > 0 {
		all = append(all, example{"with the labels and annotations of the parameters", carefulPod(metadataWith("labels", labels),
			metadataWith("annotations", labels))})
	}
	for _, value := range values {
		image := value + "train:v1"
		all = append(all,
			example{fmt.Sprintf("with an image of %s", value), examplePod(mainWith("image", image))},
			example{fmt.Sprintf("with an image below %s", value), examplePod(mainWith("image", value+"/train:v1"))},
			example{fmt.Sprintf("with the priority class %s", value), examplePod(specWith("priorityClassName", value))},
			example{fmt.Sprintf("with the service account %s", value), examplePod(specWith("serviceAccountName", value))},
			example{fmt.Sprintf("with the capability %s", value), examplePod(mainWith("securityContext",
				map[string]any{"capabilities": map[string]any{"add": []any{value}}}))},
			example{fmt.Sprintf("with the variable %s", value), examplePod(mainWith("env", []any{map[string]any{"name": value, "value": "1"}}))},
		)
	}
	if slices.Equal(kinds, []string{kindJob}) {
		return asJobs(all)
	}
	return all
}

// collectTexts collects all strings of a value.
func collectTexts(value any, found map[string]bool) {
	switch value := value.(type) {
	case string:
		found[value] = true
	case map[string]any:
		for _, child := range value {
			collectTexts(child, found)
		}
	case []any:
		for _, child := range value {
			collectTexts(child, found)
		}
	}
}

var labelKey = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// isLabelKey reports whether a text can be the key of a label.
func isLabelKey(text string) bool { return labelKey.MatchString(text) }
