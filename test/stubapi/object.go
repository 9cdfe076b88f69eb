// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// object is one that is kept. It is never changed; a write makes another.
type object struct {
	namespace, name string
	version         uint64
	labels          labels.Set
	fields          fields.Set

	// tree is the object; nil for a pod, which is kept as protobuf.
	tree map[string]any
	pod  []byte
}

func (o *object) key() string { return o.namespace + "/" + o.name }

// keep is the object that is written as tree.
func (k *Kind) keep(tree map[string]any, version uint64) (*object, error) {
	u := unstructured.Unstructured{Object: tree}
	u.SetResourceVersion(strconv.FormatUint(version, 10))
	if k.Resource != "pods" || k.Group != "" {
		return &object{
			namespace: u.GetNamespace(), name: u.GetName(), version: version, labels: u.GetLabels(), tree: tree,
			fields: fields.Set{"metadata.name": u.GetName(), "metadata.namespace": u.GetNamespace()},
		}, nil
	}
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, &pod); err != nil {
		return nil, fmt.Errorf("reading a pod: %w", err)
	}
	return keepPod(&pod)
}

// keepPod is a pod as it is kept; its resourceVersion is in it.
func keepPod(pod *corev1.Pod) (*object, error) {
	version, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: resource version: %w", pod.Namespace, pod.Name, err)
	}
	raw, err := pod.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return &object{
		namespace: pod.Namespace, name: pod.Name, version: version, labels: pod.Labels, pod: raw,
		fields: fields.Set{
			"metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
			"status.phase": string(pod.Status.Phase), "spec.nodeName": pod.Spec.NodeName,
		},
	}, nil
}

// content is the object as a tree of its own.
func (o *object) content() (map[string]any, error) {
	if o.pod == nil {
		return runtime.DeepCopyJSON(o.tree), nil
	}
	pod, err := o.decodePod()
	if err != nil {
		return nil, err
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
}

func (o *object) decodePod() (*corev1.Pod, error) {
	var pod corev1.Pod
	if err := pod.Unmarshal(o.pod); err != nil {
		return nil, fmt.Errorf("decoding pod %s: %w", o.key(), err)
	}
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	return &pod, nil
}

// json is the object in JSON, or only its metadata.
func (o *object) json(metadataOnly bool) ([]byte, error) {
	var whole any = o.tree
	if o.pod != nil {
		pod, err := o.decodePod()
		if err != nil {
			return nil, err
		}
		whole = pod
		if metadataOnly {
			whole = &metav1.PartialObjectMetadata{TypeMeta: partial, ObjectMeta: pod.ObjectMeta}
		}
	} else if metadataOnly {
		whole = map[string]any{"apiVersion": partial.APIVersion, "kind": partial.Kind, "metadata": o.tree["metadata"]}
	}
	return json.Marshal(whole)
}

var partial = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
