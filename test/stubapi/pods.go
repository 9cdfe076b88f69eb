// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// PodKind is that of pods.
var PodKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// PutPod is [Server.Put] for a pod, without the way through a tree. The pod is
// the caller's again afterwards; its resourceVersion is set.
func (s *Server) PutPod(pod *corev1.Pod) error {
	t, err := s.tableOf(PodKind)
	if err != nil {
		return err
	}
	_, err = s.store.put(t, pod.Namespace+"/"+pod.Name, func(_ *object, version uint64) (*object, error) {
		pod.TypeMeta = metav1.TypeMeta{}
		pod.ResourceVersion = strconv.FormatUint(version, 10)
		return keepPod(pod)
	})
	return err
}

// DeletePod is [Server.Delete] for a pod.
func (s *Server) DeletePod(namespace, name string) error { return s.Delete(PodKind, namespace, name) }
