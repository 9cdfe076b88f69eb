// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// PodKind is the kind of pods.
var PodKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// PutPod is [Server.Put] for a pod, without the conversion to a tree. The caller may use
// the pod again afterwards; its resourceVersion is set.
func (s *Server) PutPod(pod *corev1.Pod) error {
	t, err := s.tableOf(PodKind)
	if err != nil {
		return err
	}
	_, err = s.store.put(t, pod.Namespace+"/"+pod.Name, func(_ *object, version uint64) (*object, error) {
		pod.TypeMeta = metav1.TypeMeta{}
		pod.ResourceVersion = strconv.FormatUint(version, 10)
		return newPodObject(pod)
	})
	return err
}

// DeletePod is [Server.Delete] for a pod.
func (s *Server) DeletePod(namespace, name string) error { return s.Delete(PodKind, namespace, name) }

// Pod returns a pod of a job, with a realistic size of about 3 kB.
func (f Fleet) Pod(root, index int) *corev1.Pod {
	started := metav1.NewTime(f.StartedAt(root))
	name := f.RootName(root)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace(root), Name: podName(name, index), GenerateName: name + "-",
			UID:               types.UID(fmt.Sprintf("20000000-0000-4000-8000-%012x", root*f.PodsPerRoot+index)),
			CreationTimestamp: started,
			Labels: map[string]string{
				"batch.kubernetes.io/job-name": name, "job-name": name, "batch.kubernetes.io/controller-uid": string(f.RootUID(root)),
				"sluice.dev/project": f.Namespace(root), "sluice.dev/department": Department,
				"sluice.dev/node-pool": NodePool, "sluice.dev/workload-type": "train",
			},
			Annotations: map[string]string{
				"sluice.dev/created-by": "system:serviceaccount:kube-system:job-controller", "sluice.dev/time-limit": "48h",
				"sluice.dev/max-runtime": "24h",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "Job", Name: name, UID: f.RootUID(root), Controller: new(true), BlockOwnerDeletion: new(true),
			}},
			ManagedFields: managedFields(started),
		},
		Spec:   podSpec(nodeName((root*f.PodsPerRoot + index) % max(1, f.Nodes))),
		Status: podStatus(started),
	}
}

// podSpec returns a spec that requests a GPU, with the usual fields of a training pod.
func podSpec(node string) corev1.PodSpec {
	resources := corev1.ResourceList{
		"nvidia.com/gpu": resource.MustParse("1"), "sluice.dev/gpu-milli." + NodePool: resource.MustParse("1k"),
		"cpu": resource.MustParse("8"), "memory": resource.MustParse("64Gi"),
	}
	container := corev1.Container{
		Name: "train", Image: "registry.example.org/lab/pytorch@sha256:1b3a7c3f5de0a1c8f2c6b1f4d8e6a9c7b5d3f1e0a2c4b6d8f0e1a3c5b7d9f1e3",
		Command:   []string{"torchrun", "--nproc-per-node=1", "train.py", "--config=/etc/train/config.yaml"},
		Resources: corev1.ResourceRequirements{Limits: resources, Requests: resources},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "work", MountPath: "/work"},
			{Name: "kube-api-access-8xk2p", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
		},
		TerminationMessagePath:   "/dev/termination-log",
		TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullIfNotPresent,
	}
	for i := range 12 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("NCCL_SETTING_%02d", i), Value: "some-value-of-usual-length"})
	}
	return corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{container}, RestartPolicy: corev1.RestartPolicyNever,
		DNSPolicy: corev1.DNSClusterFirst, ServiceAccountName: "default", SchedulerName: "default-scheduler",
		PriorityClassName: "sluice-train",
		Priority:          new(int32(-8)), TerminationGracePeriodSeconds: new(int64(30)),
		Tolerations: []corev1.Toleration{{
			Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoSchedule,
		}},
		Volumes: []corev1.Volume{{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}
}

// podStatus returns the status of a running pod.
func podStatus(started metav1.Time) corev1.PodStatus {
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &started, HostIP: "10.0.0.17", PodIP: "10.244.3.18", QOSClass: corev1.PodQOSBurstable,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "train", Ready: true, Started: new(true), Image: "registry.example.org/lab/pytorch",
			ContainerID: "containerd://9f1e31b3a7c3f5de0a1c8f2c6b1f4d8e6a9c7b5d3f1e0a2c4b6d8f0e1a3c5b7d",
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		}},
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady,
		corev1.ContainersReady, corev1.PodScheduled,
	} {
		status.Conditions = append(status.Conditions,
			corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: started})
	}
	return status
}

// managedFields returns managed fields of a realistic size.
func managedFields(at metav1.Time) []metav1.ManagedFieldsEntry {
	const fields = `{"f:metadata":{"f:annotations":{".":{},"f:sluice.dev/created-by":{}},"f:generateName":{},"f:labels":{".":{},` +
		`"f:batch.kubernetes.io/controller-uid":{},"f:job-name":{}},"f:ownerReferences":{".":{},` +
		`"k:{\"uid\":\"10000000-0000-4000-8000-000000000000\"}":{}}},` +
		`"f:spec":{"f:containers":{"k:{\"name\":\"train\"}":{".":{},"f:command":{},"f:env":{".":{}},"f:image":{},` +
		`"f:imagePullPolicy":{},"f:name":{},"f:resources":{".":{},"f:limits":{".":{},"f:nvidia.com/gpu":{}}}}},` +
		`"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},` +
		`"f:terminationGracePeriodSeconds":{}}}`
	return []metav1.ManagedFieldsEntry{
		{
			Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		},
		{
			Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Subresource: "status",
		},
	}
}
