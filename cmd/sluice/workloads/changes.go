// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloads

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
	"sluice.dev/cmd/sluice/submission"
)

// Change is a JSON merge patch of an object.
type Change struct {
	Object *unstructured.Unstructured
	Patch  map[string]any
}

// Stop returns the changes that stop a workload by the action of its kind, and nil if it is stopped. A workload
// that cannot be started again is stopped only with final. Kueue would resume a workload that is only suspended,
// so its Workload comes first.
func (w *Workload) Stop(now time.Time, final bool) ([]Change, error) {
	name := strings.ToLower(w.Object.GetKind()) + "/" + w.Object.GetName()
	action := w.Kind.StopAction
	switch {
	case w.Kind.IsFinished(w.Object):
		return nil, fmt.Errorf("%s has finished; `sluice delete %s` removes it", name, name)
	case w.isStopped():
		return nil, nil
	case action.Method == workloadkind.StopByDeletion || action.Method == workloadkind.StopNever || action.Method == "":
		return nil, fmt.Errorf("a %s cannot be stopped and started again; `sluice delete %s` removes it", w.Object.GetKind(), name)
	case !w.Kind.IsReversible() && !final:
		return nil, fmt.Errorf("%s could not be started again (its kind %s); stop it all the same with --final, or wait for its end",
			name, strings.ReplaceAll(w.Kind.DescribeStop(), "`", ""))
	}
	var changes []Change
	if w.isQueuedByKueue() && w.Queued != nil {
		changes = append(changes, Change{w.Queued, queuedKind().StopPatch(w.Queued, now)})
	}
	patch := w.Kind.StopPatch(w.Object, now)
	for key, value := range w.Kind.StopAnnotations(w.Object) {
		workloadkind.SetPatchValue(patch, value, "metadata", "annotations", key)
	}
	return append(changes, Change{w.Object, patch}), nil
}

// Start returns the change that starts a stopped workload with its former number of replicas, and nil if it is
// not stopped. Kueue starts a workload of its queues once the Workload is active.
func (w *Workload) Start() (*Change, error) {
	name := strings.ToLower(w.Object.GetKind()) + "/" + w.Object.GetName()
	switch {
	case w.Kind.IsFinished(w.Object):
		return nil, fmt.Errorf("%s has finished; `sluice clone %s NEW` starts a copy", name, name)
	case !w.Kind.IsReversible():
		return nil, fmt.Errorf("a %s cannot be started again; `sluice clone %s NEW` starts a copy", w.Object.GetKind(), name)
	case w.isQueuedByKueue() && w.Queued != nil && workloadkind.IsPaused(w.Queued):
		return &Change{w.Queued, queuedKind().StartPatch(w.Queued)}, nil
	case w.Kind.RequestsPods(w.Object):
		return nil, nil
	case w.isQueuedByKueue():
		return nil, nil // Kueue starts it
	}
	return &Change{w.Object, w.Kind.StartPatch(w.Object)}, nil
}

func queuedKind() workloadkind.Kind {
	kind, _ := workloadkind.Lookup(kueueWorkloadKind)
	return kind
}

// serverKeys are labels and annotations that Kubernetes writes.
var serverKeys = []string{
	"kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision",
	"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name",
	"pod-template-hash", "pod-template-generation", "controller-revision-hash",
}

// Copy returns a copy of a workload with another name: without its status, and without what Sluice, Kubernetes
// and Kueue wrote. Labels with the old name get the new one, and a selector never selects the pods of both. A
// stopped workload is copied as one that runs.
func (w *Workload) Copy(name string) (*unstructured.Unstructured, error) {
	if name == w.Object.GetName() {
		return nil, fmt.Errorf("the copy needs another name than %s", name)
	}
	copied := &unstructured.Unstructured{Object: w.Object.DeepCopy().Object}
	if workloadkind.IsPaused(copied) {
		mergeInto(copied.Object, w.Kind.StartPatch(copied))
	}
	delete(copied.Object, "status")
	labels, annotations := copied.GetLabels(), copied.GetAnnotations()
	copied.Object["metadata"] = map[string]any{"name": name, "namespace": w.Object.GetNamespace()}
	copied.SetLabels(labels)
	copied.SetAnnotations(annotations)
	former := w.Object.GetName()
	renameMetadata(copied.Object, former, name)
	if w.Object.GroupVersionKind().GroupKind() == podKind {
		cleanPodSpec(copied.Object)
		return copied, nil
	}
	w.copySelector(copied, name)
	for _, template := range workloadkind.Templates(copied.GroupVersionKind().GroupKind(), copied.Object) {
		renameMetadata(template.Body, former, name)
	}
	return copied, nil
}

// copySelector gives the copy a selector of its own. A Job without spec.manualSelector gets one when it is created.
func (w *Workload) copySelector(copied *unstructured.Unstructured, name string) {
	manual, _, _ := unstructured.NestedBool(copied.Object, "spec", "manualSelector")
	if copied.GetKind() == "Job" && !manual {
		unstructured.RemoveNestedField(copied.Object, "spec", "selector")
		return
	}
	path := []string{"spec", "selector", "matchLabels"}
	selector, found, _ := unstructured.NestedMap(copied.Object, path...)
	if !found { // a ReplicationController has the labels in spec.selector
		path = path[:2]
		if selector, found, _ = unstructured.NestedMap(copied.Object, path...); !found || copied.GetKind() != "ReplicationController" {
			return
		}
	}
	for key, value := range selector {
		if value == w.Object.GetName() {
			selector[key] = name
		}
	}
	selector[submission.LabelInstance] = name
	_ = unstructured.SetNestedMap(copied.Object, selector, path...) // the path was just read
	_ = unstructured.SetNestedField(copied.Object, name, "spec", "template", "metadata", "labels", submission.LabelInstance)
}

// renameMetadata removes the labels and annotations that a user does not write, and renames labels.
func renameMetadata(object map[string]any, former, name string) {
	for _, field := range []string{"labels", "annotations"} {
		found, _, err := unstructured.NestedMap(object, "metadata", field)
		if err != nil || len(found) == 0 {
			continue
		}
		maps.DeleteFunc(found, func(key string, _ any) bool { return !isWrittenByUsers(key) })
		for key, value := range found {
			if field == "labels" && value == former {
				found[key] = name
			}
		}
		if len(found) == 0 {
			unstructured.RemoveNestedField(object, "metadata", field)
			continue
		}
		_ = unstructured.SetNestedMap(object, found, "metadata", field) // the path was just read
	}
	unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
}

// isWrittenByUsers reports whether a user writes a label or an annotation.
func isWrittenByUsers(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	if prefix == v1alpha1.Group {
		return key == v1alpha1.LabelWorkloadType || workload.IsRequestAnnotation(key)
	}
	return !slices.Contains(serverKeys, key)
}

// cleanPodSpec removes what admission and the scheduler wrote into a pod.
func cleanPodSpec(pod map[string]any) {
	spec, _ := pod["spec"].(map[string]any)
	for _, field := range []string{
		"nodeName", "priority", "priorityClassName", "preemptionPolicy", "schedulerName", "schedulingGates", "serviceAccount",
	} {
		delete(spec, field)
	}
	const tokenVolume = "kube-api-access-" // of the ServiceAccount
	isToken := func(element any) bool {
		fields, _ := element.(map[string]any)
		volume, _ := fields["name"].(string)
		return strings.HasPrefix(volume, tokenVolume)
	}
	deleteElements(spec, "volumes", isToken)
	deleteElements(spec, "tolerations", func(element any) bool {
		fields, _ := element.(map[string]any)
		key, _ := fields["key"].(string)
		return strings.HasPrefix(key, "node.kubernetes.io/")
	})
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := spec[list].([]any)
		for _, element := range containers {
			if container, ok := element.(map[string]any); ok {
				deleteElements(container, "volumeMounts", isToken)
			}
		}
	}
}

func deleteElements(object map[string]any, field string, unwanted func(any) bool) {
	list, _ := object[field].([]any)
	if list = slices.DeleteFunc(list, unwanted); len(list) > 0 {
		object[field] = list
	} else {
		delete(object, field)
	}
}

// mergeInto applies a JSON merge patch.
func mergeInto(object, patch map[string]any) {
	for key, value := range patch {
		fields, isObject := value.(map[string]any)
		below, had := object[key].(map[string]any)
		switch {
		case value == nil:
			delete(object, key)
		case isObject && had:
			mergeInto(below, fields)
		case isObject:
			below = map[string]any{}
			mergeInto(below, fields)
			object[key] = below
		default:
			object[key] = value
		}
	}
}
