// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	"PodDisruptionBudget": {
		`{apiVersion: policy/v1, kind: PodDisruptionBudget, spec: {maxUnavailable: 0, selector: {matchLabels: {app: "{name}"}}}}`, policyv1.PodDisruptionBudget{}, "",
	},
	"ConfigMap": {`{apiVersion: v1, kind: ConfigMap, data: {a: b}}`, corev1.ConfigMap{}, ""},
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
	"Secret":         corev1.SchemeGroupVersion.WithKind("Secret"),
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

// create creates the ordinary object of a kind, changed by a YAML fragment. The control is the
// ordinary object.
func create(kind, fragment string) attempt { return createWith(kind, "", fragment) }

// createPods is create with a fragment of the pod, which for other kinds changes the template.
func createPods(kind, fragment string) attempt { return create(kind, inTemplate(kind, fragment)) }

// createWith is create with a fragment that the control has, too.
func createWith(kind, both, fragment string) attempt {
	send := func(fragments ...string) func(a *attacker) (*unstructured.Unstructured, error) {
		return func(a *attacker) (*unstructured.Unstructured, error) {
			object, err := a.ordinary(kind, a.intruder(), fragments...)
			if err != nil {
				return nil, err
			}
			return object, a.create(object)
		}
	}
	return attempt{
		text: fmt.Sprintf("create %s with %s", kind, shorten(both+fragment)), run: send(both, fragment),
		control: &attempt{text: fmt.Sprintf("create %s with %s", kind, both), run: send(both)},
	}
}

// apply creates an object of which the YAML says all. There is no control.
func apply(text string) attempt {
	return attempt{text: "create " + shorten(text), run: func(a *attacker) (*unstructured.Unstructured, error) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(a.expand(text)), &object.Object); err != nil {
			return nil, err
		}
		return object, a.create(object)
	}}
}

// target is an object that a request concerns.
type target struct {
	text string
	find func(a *attacker) (*unstructured.Unstructured, error)
	// foreign is empty for the attacker's own objects.
	foreign string
}

// own is an object that the attacker created before: the ordinary one with the fragment. Pods do
// not start.
func own(kind string, fragments ...string) target {
	return target{text: fmt.Sprintf("the attacker's %s %s", kind, shorten(strings.Join(fragments, ""))), find: func(a *attacker) (*unstructured.Unstructured, error) {
		return a.as(a.role).fixture(kind, fragments...)
	}}
}

// colleagues is such an object of another member of the project, an L1 researcher.
func colleagues(kind string, fragments ...string) target {
	return target{text: "a colleague's " + kind, foreign: "it is a colleague's", find: func(a *attacker) (*unstructured.Unstructured, error) {
		return a.as(colleague).fixture(kind, fragments...)
	}}
}

// neighbors is such an object in another project.
func neighbors(kind string, fragments ...string) target {
	return target{text: "a neighbor's " + kind, foreign: "it is another project's", find: func(a *attacker) (*unstructured.Unstructured, error) {
		return a.as(neighbor).fixture(kind, fragments...)
	}}
}

// named is an object of Sluice, of the scheduler or of the cluster.
func named(kind, name string) target {
	return target{text: kind + " " + name, foreign: "it is not the attacker's", find: func(a *attacker) (*unstructured.Unstructured, error) {
		object := newObject(kind)
		object.SetName(a.expand(name))
		object.SetNamespace(a.namespace)
		return object, nil
	}}
}

// patch changes an object: by a JSON patch if the body is a list, else as kubectl would. The
// control is an annotation.
func patch(of target, body string) attempt { return patchSubresource(of, "", body, noteBody) }

const noteBody = `{"metadata":{"annotations":{"example.org/note":"mine"}}}`

// patchStatus is patch through the subresource status.
func patchStatus(of target, body string) attempt {
	return patchSubresource(of, "status", body, noteBody)
}

// patchSubresource is patch through a subresource. The control sends the body control; none if it
// is empty.
func patchSubresource(of target, subresource, body, control string) attempt {
	send := func(body string) func(a *attacker) (*unstructured.Unstructured, error) {
		return func(a *attacker) (*unstructured.Unstructured, error) {
			object, err := of.find(a)
			if err != nil {
				return nil, err
			}
			return object, a.patch(object, subresource, body)
		}
	}
	result := attempt{text: fmt.Sprintf("patch %s %s with %s", of.text, subresource, shorten(body)), run: send(body), foreign: of.foreign}
	if of.foreign == "" && control != "" {
		result.control = &attempt{text: fmt.Sprintf("patch %s %s with %s", of.text, subresource, control), run: send(control)}
	}
	return result
}

// remove deletes an object.
func remove(of target, options ...client.DeleteOption) attempt {
	return attempt{
		text: fmt.Sprintf("delete %s %v", of.text, options), foreign: of.foreign,
		run: func(a *attacker) (*unstructured.Unstructured, error) {
			object, err := of.find(a)
			if err != nil {
				return nil, err
			}
			if a.dry {
				options = append(options[:len(options):len(options)], client.DryRunAll)
			}
			return object, a.client.Delete(a.t.Context(), object.DeepCopy(), options...)
		},
	}
}

// removeAll deletes all objects of the kind in the attacker's namespace. It is always a dry run.
func removeAll(kind string) attempt {
	return attempt{text: "delete all of kind " + kind, foreign: "they are not all the attacker's", run: func(a *attacker) (*unstructured.Unstructured, error) {
		object := newObject(kind)
		return object, a.client.DeleteAllOf(a.t.Context(), object, client.InNamespace(a.namespace), client.DryRunAll)
	}}
}

// post creates a subresource of an object, such as a Binding, an Eviction or a Scale.
func post(of target, subresource, body string) attempt {
	return attempt{
		text: fmt.Sprintf("create %s of %s: %s", subresource, of.text, shorten(body)), foreign: of.foreign,
		run: func(a *attacker) (*unstructured.Unstructured, error) {
			object, err := of.find(a)
			if err != nil {
				return nil, err
			}
			sub := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(a.expand(body)), &sub.Object); err != nil {
				return nil, err
			}
			sub.SetName(object.GetName())
			sub.SetNamespace(object.GetNamespace())
			var options []client.SubResourceCreateOption
			if a.dry {
				options = append(options, client.DryRunAll)
			}
			return object, a.client.SubResource(subresource).Create(a.t.Context(), object.DeepCopy(), sub, options...)
		},
	}
}

// do is any other request. It has to observe a.dry.
func do(text string, run func(a *attacker) (*unstructured.Unstructured, error)) attempt {
	return attempt{text: text, run: run}
}

// really sends the request for real, and not as a dry run. What it creates is deleted afterwards.
func really(of attempt) attempt {
	run := of.run // for the control a dry run suffices
	of.run = func(a *attacker) (*unstructured.Unstructured, error) {
		sender := *a
		sender.dry = false
		return run(&sender)
	}
	return of
}

// inNamespace sends the request in another namespace.
func inNamespace(namespace string, of attempt) attempt {
	if of.control != nil {
		control := inNamespace(namespace, *of.control)
		of.control = &control
	}
	run := of.run
	of.run = func(a *attacker) (*unstructured.Unstructured, error) {
		there := *a
		there.namespace = a.expand(namespace)
		return run(&there)
	}
	of.text += " in " + namespace
	return of
}

// create creates the object in the attacker's namespace. A real one is deleted with the test.
func (a *attacker) create(object *unstructured.Unstructured) error {
	namespaced, err := a.client.IsObjectNamespaced(object)
	if err != nil {
		return err
	}
	if namespaced && object.GetNamespace() == "" {
		object.SetNamespace(a.namespace)
	}
	var options []client.CreateOption
	if a.dry {
		options = append(options, client.DryRunAll)
	}
	err = a.retry(func() error { return a.client.Create(a.t.Context(), object, options...) })
	if err == nil && !a.dry {
		a.cleanUp(object)
	}
	return err
}

func (a *attacker) patch(object *unstructured.Unstructured, subresource, body string) error {
	kind := types.MergePatchType
	switch _, builtIn := strategicGroups[object.GroupVersionKind().Group]; {
	case strings.HasPrefix(body, "["):
		kind = types.JSONPatchType
	case builtIn:
		kind = types.StrategicMergePatchType
	}
	raw := client.RawPatch(kind, []byte(a.expand(body)))
	return a.retry(func() error {
		if subresource != "" {
			var options []client.SubResourcePatchOption
			if a.dry {
				options = append(options, client.DryRunAll)
			}
			return a.client.SubResource(subresource).Patch(a.t.Context(), object, raw, options...)
		}
		var options []client.PatchOption
		if a.dry {
			options = append(options, client.DryRunAll)
		}
		return a.client.Patch(a.t.Context(), object, raw, options...)
	})
}

// strategicGroups are the API groups whose lists are merged by name.
var strategicGroups = map[string]bool{"": true, "apps": true, "batch": true, "policy": true, "networking.k8s.io": true}

// retry repeats a request that failed because the machine is busy.
func (a *attacker) retry(request func() error) error {
	for range 20 {
		err := request()
		if !isTransient(err) || a.t.Context().Err() != nil {
			return err
		}
		select {
		case <-a.t.Context().Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return errors.New("the API server was busy in 20 attempts")
}

func isTransient(err error) bool {
	return err != nil && (apierrors.IsTooManyRequests(err) && !strings.Contains(err.Error(), "disruption") ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		(apierrors.IsInternalError(err) && (strings.Contains(err.Error(), "failed calling webhook") || strings.Contains(err.Error(), "timed out"))))
}

func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 200 {
		return text[:200] + "..."
	}
	return text
}
