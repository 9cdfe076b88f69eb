// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"encoding/json"
	"fmt"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
)

// template is the ordinary object that create changes.
type template struct {
	text string
	// typed is the Go type, by which fragments are merged as kubectl does; nil for a JSON merge.
	typed any
	// pods is the path of the pod template.
	pods string
}

const (
	podText = `{metadata: {labels: {app: "{name}"}}, spec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: any}]}}`
	jobText = `{template: {metadata: {labels: {app: "{name}"}}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1, containers: [{name: main, image: any}]}}}`
)

// templates are the ordinary objects by kind.
var templates = map[string]template{
	"Pod": {"{apiVersion: v1, kind: Pod, " + podText[1:], corev1.Pod{}, ""},
	"Job": {"{apiVersion: batch/v1, kind: Job, spec: " + jobText + "}", batchv1.Job{}, "spec.template"},
	"CronJob": {
		`{apiVersion: batch/v1, kind: CronJob, spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: ` + jobText + "}}}",
		batchv1.CronJob{},
		"spec.jobTemplate.spec.template",
	},
	"Deployment":  {controllerText("apps/v1", "Deployment"), appsv1.Deployment{}, "spec.template"},
	"StatefulSet": {controllerText("apps/v1", "StatefulSet"), appsv1.StatefulSet{}, "spec.template"},
	"ReplicaSet":  {controllerText("apps/v1", "ReplicaSet"), appsv1.ReplicaSet{}, "spec.template"},
	"DaemonSet":   {controllerText("apps/v1", "DaemonSet"), appsv1.DaemonSet{}, "spec.template"},
	"ReplicationController": {
		`{apiVersion: v1, kind: ReplicationController, spec: {selector: {app: "{name}"}, template: ` + podText + "}}",
		corev1.ReplicationController{},
		"spec.template",
	},
	"Service": {`{apiVersion: v1, kind: Service, spec: {selector: {app: "{name}"}, ports: [{port: 80}]}}`, corev1.Service{}, ""},
	"Ingress": {
		`{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {rules: [{host: "{name}.hostile.example"}]}}`, networkingv1.Ingress{}, "",
	},
	"PodDisruptionBudget": {
		`{apiVersion: policy/v1, kind: PodDisruptionBudget, spec: {maxUnavailable: 0, selector: {matchLabels: {app: "{name}"}}}}`, policyv1.PodDisruptionBudget{}, "",
	},
	"Secret":    {`{apiVersion: v1, kind: Secret, stringData: {a: b}}`, corev1.Secret{}, ""},
	"ConfigMap": {`{apiVersion: v1, kind: ConfigMap, data: {a: b}}`, corev1.ConfigMap{}, ""},
	"PersistentVolumeClaim": {
		`{apiVersion: v1, kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, corev1.PersistentVolumeClaim{}, "",
	},
	"Extension": {
		`{apiVersion: sluice.dev/v1alpha1, kind: Extension, spec: {target: {apiVersion: sluice.dev/v1alpha1, kind: Project, name: "{project}"}, action: Renew, reason: more}}`, nil, "",
	},
	"Project": {
		`{apiVersion: sluice.dev/v1alpha1, kind: Project, spec: {department: "{department}", owners: [{name: Owner, email: owner@example.org}],` +
			` nodePools: [{name: "{pool}", gpu: {guaranteed: "0", limit: "1"}}]}}`, nil, "",
	},
	"ResourceClaim": {
		`{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: nic.example.org}}]}}}`, nil, "",
	},
	"ResourceClaimTemplate": {
		`{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: nic.example.org}}]}}}}`, nil, "",
	},
}

func controllerText(version, kind string) string {
	return fmt.Sprintf(`{apiVersion: %s, kind: %s, spec: {selector: {matchLabels: {app: "{name}"}}, template: %s}}`, version, kind, podText)
}

// kinds are the kinds that rows name, besides those of templates.
var kinds = map[string]schema.GroupVersionKind{
	"Namespace":      corev1.SchemeGroupVersion.WithKind("Namespace"),
	"Node":           corev1.SchemeGroupVersion.WithKind("Node"),
	"ResourceQuota":  corev1.SchemeGroupVersion.WithKind("ResourceQuota"),
	"LimitRange":     corev1.SchemeGroupVersion.WithKind("LimitRange"),
	"ServiceAccount": corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	"RoleBinding":    {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	"NetworkPolicy":  {Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	"LocalQueue":     {Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "LocalQueue"},
	"ClusterQueue":   {Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "ClusterQueue"},
	"Workload":       {Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "Workload"},
	"PodGroup":       {Group: "scheduling.run.ai", Version: "v2alpha2", Kind: "PodGroup"},
	"Queue":          {Group: "scheduling.run.ai", Version: "v2", Kind: "Queue"},
	"Department":     v1alpha1.GroupVersion.WithKind("Department"),
	"NodePool":       v1alpha1.GroupVersion.WithKind("NodePool"),
	"Policy":         v1alpha1.GroupVersion.WithKind("Policy"),
	"WorkloadClock":  v1alpha1.GroupVersion.WithKind("WorkloadClock"),
	"Notice":         v1alpha1.GroupVersion.WithKind("Notice"),
	"UsageRecord":    v1alpha1.GroupVersion.WithKind("UsageRecord"),
	"GPUNode":        v1alpha1.GroupVersion.WithKind("GPUNode"),
}

// newObject returns an empty object of a kind of templates or kinds.
func newObject(kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if t, ok := templates[kind]; ok {
		if err := yaml.Unmarshal([]byte(t.text), &object.Object); err != nil {
			panic(fmt.Sprintf("template of %s: %v", kind, err))
		}
		return object
	}
	gvk, ok := kinds[kind]
	if !ok {
		panic("unknown kind " + kind)
	}
	object.SetGroupVersionKind(gvk)
	return object
}

// ordinary returns the ordinary object of the kind, changed by YAML fragments.
func (a *attacker) ordinary(kind, name string, fragments ...string) (*unstructured.Unstructured, error) {
	base, ok := templates[kind]
	if !ok {
		return nil, fmt.Errorf("kind %s has no template", kind)
	}
	raw, err := yaml.YAMLToJSON([]byte(a.expand(strings.ReplaceAll(base.text, "{name}", name))))
	if err != nil {
		return nil, fmt.Errorf("template of %s: %w", kind, err)
	}
	for _, fragment := range fragments {
		if fragment == "" {
			continue
		}
		change, err := yaml.YAMLToJSON([]byte(a.expand(strings.ReplaceAll(fragment, "{name}", name))))
		if err != nil {
			return nil, fmt.Errorf("fragment %s: %w", fragment, err)
		}
		if base.typed != nil {
			raw, err = strategicpatch.StrategicMergePatch(raw, change, base.typed)
		} else {
			raw, err = jsonpatch.MergePatch(raw, change)
		}
		if err != nil {
			return nil, fmt.Errorf("fragment %s: %w", fragment, err)
		}
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &object.Object); err != nil {
		return nil, err
	}
	if object.GetName() == "" && object.GetGenerateName() == "" {
		object.SetName(name)
	}
	return object, nil
}

// inTemplate returns the fragment of a pod as a fragment of the kind's pod template.
func inTemplate(kind, fragment string) string {
	path := templates[kind].pods
	if path == "" || fragment == "" {
		return fragment
	}
	inner, err := yaml.YAMLToJSON([]byte(fragment))
	if err != nil {
		panic(fmt.Sprintf("fragment %s: %v", fragment, err))
	}
	elements := strings.Split(path, ".")
	text := string(inner)
	for i := len(elements) - 1; i >= 0; i-- {
		text = fmt.Sprintf("{%q: %s}", elements[i], text)
	}
	return text
}
